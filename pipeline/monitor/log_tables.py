"""The tables for SQL that are computed from the Delta logs of topics' tables.

* `log_segments`: the segments of the topics that gateways store in separate tables. The log of such
  a table is also its topic index (`pipeline.topics.segments`), so no table of the root has these
  rows.
* `unindexed_topics`: since when a user's table has rows that are not in its topic index. Only a
  gateway, member or worker that reads the topic updates the index. Without one, the end offsets
  stay the same while the table grows, and a lag computed from them is too small.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta import (
    LogGone,
    is_table,
    local_folder,
    read_plain_table,
    time_of_new_rows,
)
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables import decode_bounds, log_end_id, partition_in, partition_of
from group_coordinator.schemas.rows import TOPIC_TABLES, TopicTable

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta import Ask


LOG_SEGMENTS = "log_segments"
UNINDEXED = "unindexed_topics"
# The columns of each table, in DuckDB's types; times in ms.
COMPUTED = {
    LOG_SEGMENTS: {
        "topic": "VARCHAR",
        "partition": "INTEGER",
        "base_offset": "BIGINT",
        "end_offset": "BIGINT",
        "min_timestamp": "BIGINT",
        "max_timestamp": "BIGINT",
    },
    UNINDEXED: {"topic": "VARCHAR", "since": "BIGINT"},
}
_Row = tuple[str, int, int, int, "int | None", "int | None"]
# The current topics that gateways store in separate tables, with their folders under the root.
TOPICS_QUERY = "SELECT topic, table_location FROM topics WHERE config IS NOT NULL ORDER BY topic"
# Each topic that is a user's table, with the newest version of the table that is indexed.
_INDEXED = """
SELECT
    topics.topic,
    any_value(topics.table_location),
    coalesce(max(topic_index.version), -1),
    coalesce(max(topic_index.committed_at), 0)
FROM topics LEFT JOIN topic_index ON topic_index.topic_id = topics.topic_id
WHERE topics.table_location IS NOT NULL AND topics.config IS NULL
GROUP BY topics.topic
"""


def read_log_segments(root: str, ask: Ask) -> list[_Row]:
    """Return a row for each file of such a topic: its offsets, and its records' times in ms.

    A further row of each partition, without records, has its end offset, because retention may have
    deleted every file. `ask` runs a DuckDB query over the root's tables.
    """
    rows: list[_Row] = []
    for topic, table in ask(TOPICS_QUERY):
        uri = f"{root.rstrip('/')}/{table}"
        found = _of_plain_log(topic, uri, ask)
        rows += _of_any_log(topic, uri) if found is None else found
    return rows


def read_past_log_segments(root: str, as_of: datetime | int) -> list[_Row]:
    """Return the rows of `read_log_segments` at an earlier time or version. Raises NotKept.

    The times of a row are the modification time of the file.
    """
    if not is_table(f"{root.rstrip('/')}/{TOPIC_TABLES.name}"):
        return []
    from group_coordinator.pipeline.topics import log_topics

    in_force, _ = log_topics(root)
    return [row for topic in in_force for row in _past(topic, as_of)]


def _of_plain_log(topic: str, uri: str, ask: Ask) -> list[_Row] | None:
    """Read the rows from the Delta log without delta-rs.

    Returns None if another engine wrote a file, or if only delta-rs can read the log.
    """
    folder = local_folder(uri)
    table = None if folder is None else read_plain_table(folder, ask)
    if table is None:
        return None
    rows: list[_Row] = []
    ends: dict[int, int] = {}
    for file in table.files.values():
        bounds = decode_bounds(file.stats)
        if bounds is None:
            return None
        number = partition_in(file.partition_values, file.path)
        times = bounds.min_timestamp, bounds.max_timestamp
        rows.append((topic, number, bounds.base, bounds.end, *times))
        ends[number] = max(ends.get(number, 0), bounds.end)
    for app_id, version in table.transactions.items():
        partition = partition_of(app_id)
        if partition is not None:
            ends[partition] = max(ends.get(partition, 0), version)
    return rows + [(topic, number, end, end, None, None) for number, end in sorted(ends.items())]


def _of_any_log(topic: str, uri: str) -> list[_Row]:
    from group_coordinator.pipeline.topics import Segments

    rows: list[_Row] = []
    segments = Segments(uri)
    segments.poll()
    for number, partition in segments.partitions().items():
        rows += [
            (topic, number, s.base, s.end, s.min_timestamp, s.max_timestamp)
            for s in partition.segments
        ]
        rows.append((topic, number, partition.log_end, partition.log_end, None, None))
    return rows


def _past(topic: TopicTable, as_of: datetime | int) -> list[_Row]:
    """Read the rows of an earlier version by delta-rs; `Segments` follows only the newest one."""
    import pyarrow as pa

    from group_coordinator.pipeline.delta import to_table
    from group_coordinator.pipeline.monitor.as_of import open_as_of

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


def read_unindexed(ask: Ask) -> list[tuple[str, int]]:
    """Return each topic with the time, ms, of the first commit of rows that are not indexed.

    `ask` runs a DuckDB query over the root's tables. If a table cannot be read, the result is the
    time of its last indexed commit, because rows may have been added since then.
    """
    found = []
    for topic, uri, version, indexed_at in ask(_INDEXED):
        try:
            since = _first_new_rows(uri, version)
        except (OSError, LogGone, Failure):
            since = indexed_at
        if since is not None:
            found.append((topic, since))
    return found


def _first_new_rows(uri: str, version: int) -> int | None:
    """Return the time of the first commit after a version that adds rows, if any."""
    if not is_table(uri):
        raise FileNotFoundError(f"{uri} has no log")
    return time_of_new_rows(uri, version)
