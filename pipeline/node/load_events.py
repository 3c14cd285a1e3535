"""The events that load groups: one for each group of the offsets topic, with its newest records.

DuckDB writes them, because a JVM's first queries are slow. It aggregates the records of groups in
memory, so a large log is first split on disk into buckets of whole groups.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa

from group_coordinator.coordinator.group.control import PREFIX
from group_coordinator.pipeline.delta import Engine, count_bytes, count_records, quoted
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node.table_scan import DuckDbView
from group_coordinator.pipeline.stream.packed_events import FIRST_KEY
from group_coordinator.pipeline.tables import open_table
from group_coordinator.schemas.records import KNOWN_TYPES, RECORD_KEY, RECORD_VALUES
from group_coordinator.schemas.tables import OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from group_coordinator.pipeline.delta import DataFile, TableFiles

log = logging.getLogger(__name__)

# The fields that a group does not need: `reason` and `request_id` are for people, and records of
# known kinds have neither `key` nor `value`.
_NOT_LOADED = ("segment", "reason", "request_id", "key", "value")
_RECORD = [field for field in OFFSETS_TOPIC.schema if field.name not in _NOT_LOADED]
_KEY = ", ".join(f'"{name}"' for name in RECORD_KEY)
_HAS_NO_VALUE = " AND ".join(f'"{name}" IS NULL' for name in RECORD_VALUES)
_IS_KNOWN = f"record_type IN ({', '.join(map(quoted, KNOWN_TYPES))})"
_IS_PLACED = "record_type IS NOT NULL AND group_id IS NOT NULL AND log_offset IS NOT NULL"
# A record of an unknown kind, as it is loaded, without a value: only its existence counts.
_UNKNOWN = (
    """{'partition': "partition", 'record_type': record_type, 'group_id': group_id, """
    """'timestamp': epoch_ms("timestamp"), 'log_offset': log_offset, 'value': ''}"""
)
# The most records in a bucket. Of the usual size, they take a quarter of DuckDB's memory
# (`pipeline.node.table_scan`).
_BUCKET_RECORDS = 250_000
# The most bytes of a bucket in the log's compressed files.
_BUCKET_BYTES = 64 << 20
# The writer and the reader of a bootstrap hold one of its row groups in memory.
_ROW_GROUP_BYTES = 16 << 20
# The rows of a bucket that each of DuckDB's threads buffers.
_FLUSH_ROWS = 4096


def offsets_topic_view(engine: Engine, root: str) -> DuckDbView:
    """Return the offsets topic at its newest version, as the engine's view `log`."""
    return DuckDbView(engine, open_table(root, OFFSETS_TOPIC), "log")


def write_load_events(
    engine: Engine,
    topic: DuckDbView,
    target: TableFiles,
    partitions: Collection[int] | None = None,
    bucket_records: int = _BUCKET_RECORDS,
    log_ms: int | None = None,
) -> list[DataFile]:
    """Write one event for each group that loads it from its newest records; return the files.

    `topic` is the result of `offsets_topic_view`. The files are not yet part of the target table.
    `partitions` selects groups by offsets partition; None selects all. Groups with only tombstones
    are left out; rows without a group or a log offset too, with a warning.

    A group with records of an unknown kind is loaded from one of each such kind, so that it does
    not seem absent. `log_ms` is the newest known time of the groups, ms. Raises Failure with
    DuckDB's message.
    """
    files = topic.files
    if not files or (partitions is not None and not partitions):
        return []
    # The number of records is optional in a commit.
    uncounted = any(file.records is None for file in files)
    size = -(-count_bytes(files) // _BUCKET_BYTES)
    buckets = max(1, size, 0 if uncounted else -(-count_records(files) // bucket_records))

    def write() -> list[DataFile]:
        others = _find_unknown(engine, partitions)
        wanted = readable(partitions)
        if others:
            wanted += " AND group_id NOT IN (SELECT group_id FROM unknown)"
        engine.run(f"CREATE OR REPLACE TEMP VIEW records AS {wanted}")
        queries = [_events("unknown", _UNKNOWN, log_ms)] if others else []
        sources = ["records"] if buckets == 1 else _cut(engine, buckets)
        newest = (_events(f"({_newest(source)})", "record", log_ms) for source in sources)
        written = [_write_events(engine, query, target) for query in (*queries, *newest)]
        return [file for file in written if file is not None]

    return topic.run(write)


def groups_with_records(engine: Engine, root: str, partitions: Collection[int]) -> set[str]:
    """Return the groups of offsets partitions that have any record in the offsets topic."""
    query = f"SELECT DISTINCT group_id FROM log WHERE group_id IS NOT NULL AND {_in(partitions)}"
    topic = offsets_topic_view(engine, root)
    return {group_id for (group_id,) in topic.run(lambda: engine.run(query))}


def _write_events(engine: Engine, query: str, target: TableFiles) -> DataFile | None:
    path, local = target.new_file()
    try:
        ((records,),) = engine.run(
            f"COPY ({query}) TO {quoted(str(local))} "
            f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE_BYTES {_ROW_GROUP_BYTES})"
        )
    except Failure:
        local.unlink(missing_ok=True)
        raise
    return target.written(path, records)


def _find_unknown(engine: Engine, partitions: Collection[int] | None) -> bool:
    """Create the table `unknown`, a group's newest record of each unknown kind, if there are any.

    Returns whether there are. Logs the kinds, and the number of rows that are left out.
    """
    others = engine.run(
        f"SELECT record_type, count(*) FILTER ({_IS_PLACED}), count(*) FROM log "
        f"WHERE ({_IS_KNOWN} AND {_IS_PLACED}) IS NOT TRUE GROUP BY record_type ORDER BY ALL"
    )
    for record_type, placed, count in others:
        left_out = count if record_type in KNOWN_TYPES else count - placed
        if left_out:
            log.warning("offsets topic: %d rows of type %r skipped", left_out, record_type)
    if not any(placed for _, placed, _ in others):
        return False
    engine.run(
        f"""
        CREATE OR REPLACE TEMP TABLE unknown AS
        SELECT group_id, record_type, max(log_offset) AS log_offset,
            arg_max("partition", log_offset) AS "partition",
            arg_max("timestamp", log_offset) AS "timestamp"
        FROM (
            SELECT {_KEY}, max(log_offset) AS log_offset,
                arg_max(coalesce("timestamp", make_timestamptz(0)), log_offset) AS "timestamp",
                arg_max({_HAS_NO_VALUE}, log_offset) AS is_tombstone
            FROM log WHERE NOT {_IS_KNOWN} AND {_IS_PLACED} AND {_wanted(partitions)}
            GROUP BY {_KEY}
        )
        WHERE NOT is_tombstone GROUP BY group_id, record_type
        """
    )
    found = engine.run("SELECT record_type, count(*) FROM unknown GROUP BY ALL ORDER BY ALL")
    for record_type, count in found:
        log.warning(
            "offsets topic: %d groups have records of type %r, which this release does not know; "
            "requests to these groups are refused",
            count,
            record_type,
        )
    return bool(found)


# --- queries ------------------------------------------------------------------------------------


def readable(partitions: Collection[int] | None, view: str = "log") -> str:
    """Return SQL for the records of offsets partitions in a view; None selects all."""
    return f"SELECT * FROM {view} WHERE {_IS_KNOWN} AND {_IS_PLACED} AND {_wanted(partitions)}"


def _wanted(partitions: Collection[int] | None) -> str:
    return "true" if partitions is None else _in(partitions)


def _in(partitions: Collection[int]) -> str:
    listed = ", ".join(str(int(one)) for one in partitions)
    return f'"partition" IN ({listed})' if listed else "false"


def _cut(engine: Engine, buckets: int) -> Iterator[str]:
    """Write the records to buckets of whole groups; yield each bucket as an SQL relation."""
    folder = engine.scratch / f"buckets-{uuid.uuid4()}"
    engine.run(f"SET partitioned_write_flush_threshold = {_FLUSH_ROWS}")
    engine.run(
        f"COPY (SELECT *, hash(group_id) % {buckets} AS bucket FROM records) "
        f"TO {quoted(str(folder))} (FORMAT parquet, PARTITION_BY (bucket))"
    )
    for found in sorted(folder.glob("bucket=*")):
        files = quoted(f"{found}/*.parquet")
        yield f"read_parquet({files}, hive_partitioning = false)"


def _newest(source: str) -> str:
    """Return SQL for the newest record of each key of a relation, without tombstones."""
    record = as_json(pa.struct(_RECORD))
    return f"""
        SELECT group_id, record FROM (
            SELECT group_id, arg_max({record}, log_offset) AS record FROM {source} GROUP BY {_KEY}
        )
        WHERE record.offset_commit IS NOT NULL OR record.group_metadata IS NOT NULL
    """


def _events(source: str, record: str, log_ms: int | None) -> str:
    """Return SQL for the events of a relation's groups; `record` is the SQL of a row's record."""
    at = "null" if log_ms is None else log_ms
    opening = quoted(f'{FIRST_KEY}{PREFIX}:"load","log_ms":{at},"records":[')
    return f"""
        SELECT group_id, {opening} || string_agg(to_json({record})::VARCHAR, ',') || ']}}' AS event
        FROM {source} GROUP BY group_id
    """


def as_json(type_: pa.DataType, value: str | None = None, depth: int = 0) -> str:
    """Return SQL that converts a value of an Arrow type for JSON: bytes to base64, times to ms.

    `value` is the SQL of the value; None is a row with the struct's fields as columns.
    """
    if pa.types.is_struct(type_):
        row = "" if value is None else f"{value}."
        columns = {field.name: f'{row}"{field.name}"' for field in type_}
        fields = ", ".join(
            f"{quoted(field.name)}: {as_json(field.type, columns[field.name], depth)}"
            for field in type_
        )
        built = f"{{{fields}}}"
        return built if value is None else f"CASE WHEN {value} IS NOT NULL THEN {built} END"
    assert value is not None  # only a struct can stand for a row
    if pa.types.is_list(type_):
        item = f"item_{depth}"
        return f"[{as_json(type_.value_type, item, depth + 1)} FOR {item} IN {value}]"
    if pa.types.is_binary(type_):
        return f"base64({value})"
    return f"epoch_ms({value})" if pa.types.is_timestamp(type_) else value
