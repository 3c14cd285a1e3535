"""Where the records of the topics lie that have tables of their own, as rows for SQL.

The table of a topic is its own index (`pipeline.topics.segments`), so no table of the root has it.
"""

from __future__ import annotations

import pyarrow as pa

from pipeline.topics import Segments, log_topics

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("min_timestamp", pa.int64()),
        ("max_timestamp", pa.int64()),
    ]
)


def read_log_segments(root: str) -> pa.Table:
    """Return a row for each file of each such topic: its offsets, and its records' times in ms.

    A last row of each partition, without records, says where the partition ends: retention may
    have deleted every file.
    """
    rows: list[tuple[object, ...]] = []
    in_force, _ = log_topics(root)
    for topic in in_force:
        segments = Segments(topic.table)
        segments.poll()
        for number, partition in segments.partitions().items():
            rows += [
                (topic.topic, number, s.base, s.end, s.min_timestamp, s.max_timestamp)
                for s in partition.segments
            ]
            rows.append((topic.topic, number, partition.log_end, partition.log_end, None, None))
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )
