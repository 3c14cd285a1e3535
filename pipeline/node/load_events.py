"""The events of a bootstrap, written by DuckDB: no JVM, which costs ten seconds of its first
queries.

DuckDB keeps what it gathers for a group in memory. So a log that is too large for that is first cut
into buckets of whole groups, on disk, and the buckets are taken one after the other. What it writes
are Parquet files of the columns `group_id` and `event`, which `add_files` makes part of a table.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import Transaction

from coordinator.group.control import PREFIX
from pipeline.clock import clock_ms
from pipeline.delta.data_files import DataFile, count_bytes, count_records, data_files
from pipeline.delta.engine import Engine, quoted
from pipeline.delta.table import open_delta
from pipeline.delta.table_files import TableFiles
from pipeline.stream.source import FIRST_KEY
from pipeline.tables.store import open_table
from schemas.records import GROUP_METADATA, OFFSET_COMMIT
from schemas.tables import OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

# A record as a group is loaded from it: `reason` and `request_id` are for people.
RECORD = [
    field for field in OFFSETS_TOPIC.schema if field.name not in ("segment", "reason", "request_id")
]
KEY = ("record_type", "group_id", "topic", "topic_partition")
# A bucket of records of 300 bytes takes a quarter of this.
_MEMORY = 1 << 30
_BUCKET_RECORDS = 250_000
# Compressed, in the log; records that compress well are many, and bounded by their number.
_BUCKET_BYTES = 64 << 20
# Spark reads a row group in one task, and a writer holds one in memory.
_ROW_GROUP_BYTES = 16 << 20
# Rows that DuckDB holds for a bucket, of each thread, before it writes them.
_FLUSH_ROWS = 4096


@contextlib.contextmanager
def open_engine() -> Iterator[Engine]:
    """A DuckDB for a bootstrap, over a folder of its own to spill to."""
    with (
        tempfile.TemporaryDirectory(prefix="take-over-") as scratch,
        Engine(_MEMORY, os.cpu_count() or 1, Path(scratch)) as engine,
    ):
        # Nothing here has an order, and row groups can be bounded in bytes only without one.
        engine.run("SET preserve_insertion_order = false")
        yield engine


def write_load_events(
    root: str,
    target_folder: Path,
    partitions: Collection[int] | None = None,
    bucket_records: int = _BUCKET_RECORDS,
) -> list[DataFile]:
    """Write one event for each group that loads it from its newest records; return the files.

    The files are not yet part of a table. `partitions` are the offsets partitions whose groups are
    wanted, None for all. What is an event, and which rows are left out, is told by
    `pipeline.node.bootstrap.load_events`. Raises Failure with what DuckDB says, also for a log
    whose strings are not UTF-8.
    """
    handle = open_table(root, OFFSETS_TOPIC)
    files = data_files(handle)
    if not files or (partitions is not None and not partitions):
        return []
    # A commit need not say how many records its file has.
    uncounted = any(file.records is None for file in files)
    size = -(-count_bytes(files) // _BUCKET_BYTES)
    buckets = max(1, size, 0 if uncounted else -(-count_records(files) // bucket_records))
    with open_engine() as engine:
        engine.show("log", TableFiles(handle, engine.scratch), files)
        engine.run(f"CREATE TEMP VIEW records AS {_readable(partitions)}")
        written = []
        for source in ["records"] if buckets == 1 else _cut(engine, buckets):
            file = write_events(engine, _load_events(source), target_folder)
            if file is not None:
                written.append(file)
        return written


def write_events(engine: Engine, query: str, folder: Path) -> DataFile | None:
    """Write the events that a query gives as a file of the folder; None if there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"part-{uuid.uuid4()}.zstd.parquet"
    ((records,),) = engine.run(
        f"COPY ({query}) TO {quoted(str(target))} "
        f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE_BYTES {_ROW_GROUP_BYTES})"
    )
    if not records:
        target.unlink(missing_ok=True)
        return None
    return as_data_file(target, records)


def as_data_file(target: Path, records: int) -> DataFile:
    """Describe a file that was just written into a table's folder."""
    return DataFile(target.name, target.stat().st_size, clock_ms(), records)


def add_files(uri: str, files: Sequence[DataFile], transaction: Transaction | None = None) -> None:
    """Append files that lie in the folder of a bootstrap's table to it, in one commit."""
    with tempfile.TemporaryDirectory(prefix="take-over-") as scratch:
        TableFiles(open_delta(uri), Path(scratch)).rewrite([], files, transaction)


# --- queries ------------------------------------------------------------------------------------


def _readable(partitions: Collection[int] | None) -> str:
    query = (
        f"SELECT * FROM log WHERE record_type IN ('{OFFSET_COMMIT}', '{GROUP_METADATA}') "
        "AND group_id IS NOT NULL AND log_offset IS NOT NULL"
    )
    if partitions is None:
        return query
    return f'{query} AND "partition" IN ({", ".join(str(int(one)) for one in partitions)})'


def _cut(engine: Engine, buckets: int) -> Iterator[str]:
    """Write the records to buckets of whole groups; yield each bucket's name, as a relation."""
    folder = engine.scratch / "buckets"
    engine.run(f"SET partitioned_write_flush_threshold = {_FLUSH_ROWS}")
    engine.run(
        f"COPY (SELECT *, hash(group_id) % {buckets} AS bucket FROM records) "
        f"TO {quoted(str(folder))} (FORMAT parquet, PARTITION_BY (bucket))"
    )
    for found in sorted(folder.glob("bucket=*")):
        files = quoted(f"{found}/*.parquet")
        yield f"read_parquet({files}, hive_partitioning = false)"


def _load_events(source: str) -> str:
    """SQL for the events of the groups in a relation of the log's rows."""
    key = ", ".join(KEY)
    record = as_json(pa.struct(RECORD))
    opening = quoted(f'{FIRST_KEY}{PREFIX}:"load","records":[')
    return f"""
        WITH newest AS (
            SELECT group_id, arg_max({record}, log_offset) AS record FROM {source} GROUP BY {key}
        )
        SELECT group_id, {opening} || string_agg(to_json(record)::VARCHAR, ',') || ']}}' AS event
        FROM newest
        WHERE record.offset_commit IS NOT NULL OR record.group_metadata IS NOT NULL
        GROUP BY group_id
    """


def as_json(type_: pa.DataType, value: str | None = None, depth: int = 0) -> str:
    """SQL for a value of an Arrow type as JSON shall have it: bytes in base64, times in ms.

    `value` is the SQL of the value; None stands for a row with the struct's fields as columns.
    """
    if pa.types.is_struct(type_):
        fields = ", ".join(
            f"{quoted(field.name)}: {as_json(field.type, _field(value, field.name), depth)}"
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


def _field(value: str | None, name: str) -> str:
    return f'"{name}"' if value is None else f'{value}."{name}"'
