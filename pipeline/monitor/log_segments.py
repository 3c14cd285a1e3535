"""Where the records of the topics lie that have tables of their own, as rows for SQL.

The table of a topic is its own index (`pipeline.topics.segments`), so no table of the root has it.
"""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from pipeline.delta.arrow import to_table
from pipeline.monitor.as_of import open_as_of
from pipeline.tables.store import has_table
from schemas.tables import TOPIC_TABLES, TopicTable

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


_Row = tuple[str, int, int, int, int | None, int | None]


def read_log_segments(root: str, as_of: datetime | int | None = None) -> pa.Table:
    """Return a row for each file of each such topic: its offsets, and its records' times in ms.

    A last row of each partition, without records, says where the partition ends: retention may
    have deleted every file. Of a time in the past, or a version, the times are those at which the
    files were written. Raises NotKept.
    """
    rows: list[_Row] = []
    if has_table(root, TOPIC_TABLES):
        # Imported where there is a topic to read: of other roots every verb would wait for it.
        from pipeline.topics import log_topics

        in_force, _ = log_topics(root)
        for topic in in_force:
            rows += _present(topic) if as_of is None else _past(topic, as_of)
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def _present(topic: TopicTable) -> list[_Row]:
    from pipeline.topics import Segments

    rows: list[_Row] = []
    segments = Segments(topic.table)
    segments.poll()
    for number, partition in segments.partitions().items():
        rows += [
            (topic.topic, number, s.base, s.end, s.min_timestamp, s.max_timestamp)
            for s in partition.segments
        ]
        rows.append((topic.topic, number, partition.log_end, partition.log_end, None, None))
    return rows


def _past(topic: TopicTable, as_of: datetime | int) -> list[_Row]:
    """By what delta-rs tells of an earlier version: `Segments` follow the newest one alone."""
    from pipeline.topics import log_end_id

    handle = open_as_of(topic.table, as_of)
    if handle is None:
        return []
    files = to_table(handle.get_add_actions(flatten=True))
    if not files.num_rows:
        return []
    numbers = [int(number) for number in files.column("partition.partition").to_pylist()]
    written = files.column("modification_time").cast(pa.int64()).to_pylist()
    bounds = zip(
        files.column("min.offset").to_pylist(), files.column("max.offset").to_pylist(), strict=True
    )
    rows: list[_Row] = [
        (topic.topic, number, least, greatest + 1, at, at)
        for number, (least, greatest), at in zip(numbers, bounds, written, strict=True)
    ]
    for number in sorted(set(numbers)):
        end = handle.transaction_version(log_end_id(number))
        if end is not None:
            rows.append((topic.topic, number, end, end, None, None))
    return rows
