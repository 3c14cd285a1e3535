"""The offsets topic as Kafka's own binary records, out to a file and in from one.

A file holds the source's partition and offset, the record's timestamp, its key and its value, null
for a tombstone: as JSON Lines, the bytes in base64 and the time in ms, or as Parquet. A record that
cannot be carried over is skipped, counted and, if it is among the first, named.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from msgspec import Struct

from coordinator.config import parse_config
from coordinator.group.partition import partition_for
from pipeline.clock import clock_ms
from pipeline.commit import Appender, open_appender
from pipeline.epoch import Epoch
from pipeline.errors import Failure
from pipeline.hold import holding_partitions
from pipeline.sink import OffsetsLog
from pipeline.store import check_schema, open_table, table_uri
from schemas.kafka.codec import (
    Corrupt,
    NotEncodable,
    UnknownKey,
    decode,
    encode_key,
    encode_value,
)
from schemas.messages import Int32, Int64, Timestamp
from schemas.records import GROUP_METADATA, OFFSET_COMMIT, Record
from schemas.tables import OFFSETS_TOPIC, Table, arrow_schema, to_arrow

if TYPE_CHECKING:
    from pipeline.settings import Settings

T = TypeVar("T")

STANDARD = "-"
REASON = "imported"
# Rows that are read at once. A group's record may be a megabyte, an offset's is a hundred bytes.
READ_ROWS = 2048
# What is written at once. An import of the same source must cut the same batches: see `_identity`.
BATCH_ROWS = 10_000
BATCH_BYTES = 16 * 2**20
SORT_MEMORY = "256MB"
NAMED = 5
PROGRESS_S = 10.0

_PARQUET = (".parquet",)
_JSON_LINES = (".jsonl", ".ndjson", ".json")


class RawRecord(Struct, frozen=True):
    """One record of a file. `partition` and `offset` are where its source had it."""

    partition: Int32
    offset: Int64
    timestamp: Timestamp
    key: bytes | None
    value: bytes | None

    @property
    def size(self) -> int:
        """Bytes of the key and the value."""
        return len(self.key or b"") + len(self.value or b"")


RAW_RECORDS = Table("raw_records", arrow_schema(RawRecord))


class Tally(Struct):
    """What an export or an import did, in records.

    `records` were carried over: `tombstones` of them delete their key, and `repeated` of them had
    been written by an earlier run of the same import. `named` says which of the skipped were first.
    """

    records: int = 0
    tombstones: int = 0
    repeated: int = 0
    unknown: int = 0
    corrupt: int = 0
    named: list[str] = []

    def carried(self, is_tombstone: bool) -> None:
        """Count one that is carried over."""
        self.records += 1
        self.tombstones += is_tombstone

    def skip_unknown(self, where: str, why: str) -> None:
        """Count one of a kind that is not known."""
        self.unknown += 1
        self._name(where, why)

    def skip_corrupt(self, where: str, why: str) -> None:
        """Count one that cannot be read or written."""
        self.corrupt += 1
        self._name(where, why)

    def _name(self, where: str, why: str) -> None:
        if len(self.named) < NAMED:
            self.named.append(f"{where}: {why}")

    def __str__(self) -> str:
        carried = f"{self.records} records, {self.tombstones} of them tombstones"
        return f"{carried}; skipped {self.unknown} unknown and {self.corrupt} corrupt"


Say = Callable[[str], None]


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


class _Progress:
    """Says how far a long run is, every `PROGRESS_S`."""

    def __init__(self, say: Say, verb: str) -> None:
        self._say = say
        self._verb = verb
        self._next = time.monotonic() + PROGRESS_S

    def __call__(self, tally: Tally) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_S
            self._say(f"{self._verb} {tally} so far")


def _is_parquet(name: str) -> bool:
    """Tell the format by the file's ending; raises Failure for one that names neither."""
    ending = Path(name).suffix.lower()
    if name == STANDARD or ending in _JSON_LINES:
        return False
    if ending in _PARQUET:
        return True
    raise Failure(f"{name} ends in neither .jsonl nor .parquet, which tells its format")


def _batches(items: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Gather items, each given with its size in bytes, to what is written at once."""
    batch: list[T] = []
    total = 0
    for item, size in items:
        batch.append(item)
        total += size
        if len(batch) >= BATCH_ROWS or total >= BATCH_BYTES:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


# --- export -------------------------------------------------------------------------------------

# `epoch_ms` needs a plain timestamp: with a zone it would need an extension to be loaded.
_MILLIS = 'epoch_ms(CAST("timestamp" AS TIMESTAMP))'
_LOG_COLUMNS = {
    "partition": "partition",
    "log_offset": "log_offset",
    "timestamp": _MILLIS,
    "record_type": "record_type",
    "group_id": "group_id",
    "topic": "topic",
    "topic_partition": "topic_partition",
    "offset_commit": "offset_commit",
    "group_metadata": "group_metadata",
}


def export(root: str, out: str = STANDARD, say: Say = _to_stderr) -> Tally:
    """Write the offsets topic, by partition and log offset, to a file or, for "-", to stdout.

    The whole log as it is when this begins, in bounded memory; `say` hears how far it is. The file
    is there when it is whole. Raises Failure if the root has no offsets topic or the file's ending
    tells no format, OSError for a file that cannot be written.
    """
    if not DeltaTable.is_deltatable(table_uri(root, OFFSETS_TOPIC)):
        raise Failure(f"there is no offsets topic under {root}")
    handle = open_table(root, OFFSETS_TOPIC)
    check_schema(handle, OFFSETS_TOPIC)
    tally = Tally()
    progress = _Progress(say, "exported")
    log = handle.to_pyarrow_dataset()
    rows = _in_order(log, _LOG_COLUMNS, ("partition", "log_offset"))
    raws = (raw for row in rows if (raw := _to_raw(row, tally)) is not None)
    with _open_output(out) as write:
        for batch in _batches((raw, raw.size) for raw in raws):
            write(batch)
            progress(tally)
    return tally


def _to_raw(row: dict[str, Any], tally: Tally) -> RawRecord | None:
    where = f"partition {row['partition']} offset {row['log_offset']}"
    if row["record_type"] not in (OFFSET_COMMIT, GROUP_METADATA):
        tally.skip_unknown(where, f"unknown record type {row['record_type']!r}")
        return None
    try:
        record = msgspec.convert(row, Record)
        raw = RawRecord(
            partition=record.partition,
            offset=msgspec.convert(record.log_offset, Int64),
            timestamp=record.timestamp,
            key=encode_key(record),
            value=encode_value(record),
        )
    except (msgspec.ValidationError, NotEncodable) as error:
        tally.skip_corrupt(where, str(error))
        return None
    tally.carried(raw.value is None)
    return raw


Write = Callable[[Sequence[RawRecord]], object]


@contextmanager
def _open_output(out: str) -> Iterator[Write]:
    """Open what takes the rows; a file gets its name once it is whole."""
    is_parquet = _is_parquet(out)
    encode_lines = msgspec.json.Encoder().encode_lines
    if out == STANDARD:
        yield lambda rows: sys.stdout.buffer.write(encode_lines(rows))
        sys.stdout.buffer.flush()
        return
    partial = Path(f"{out}.partial")
    try:
        if is_parquet:
            with pq.ParquetWriter(partial, RAW_RECORDS.schema) as writer:
                yield lambda rows: writer.write_table(to_arrow(RAW_RECORDS, rows))
        else:
            with partial.open("wb") as file:
                yield lambda rows: file.write(encode_lines(rows))
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)


def _in_order(
    rows: ds.Dataset, columns: dict[str, str], order: tuple[str, str]
) -> Iterator[dict[str, Any]]:
    """Read columns, name -> SQL; what is too large to be sorted in memory is sorted on disk.

    Raises Failure if it cannot be read.
    """
    names = list(columns)
    reader = pa.RecordBatchReader.from_batches(
        pa.schema([rows.schema.field(name) for name in names]), _scan(rows, names)
    )
    selected = ", ".join(f'{sql} AS "{name}"' for name, sql in columns.items())
    by = ", ".join(f'"{name}"' for name in order)
    with tempfile.TemporaryDirectory(prefix="group-coordinator-sort-") as spill:
        config: dict[str, Any] = {"memory_limit": SORT_MEMORY, "temp_directory": spill}
        try:
            with duckdb.connect(":memory:", config=config) as connection:
                connection.register("rows_to_sort", reader)
                cursor = connection.execute(f"SELECT {selected} FROM rows_to_sort ORDER BY {by}")
                while found := cursor.fetchmany(READ_ROWS):
                    for row in found:
                        yield dict(zip(columns, row, strict=True))
        except duckdb.Error as error:
            raise Failure(f"cannot read the records: {error}") from error


def _scan(rows: ds.Dataset, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Read file after file: a scan of all of them reads ahead without end while others sort."""
    for fragment in rows.get_fragments():
        yield from fragment.to_batches(
            schema=rows.schema,
            columns=names,
            batch_size=READ_ROWS,
            batch_readahead=1,
            use_threads=False,
            fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=False),
        )


# --- import -------------------------------------------------------------------------------------


def import_(
    root: str, source: str, settings: Settings, again: bool = False, say: Say = _to_stderr
) -> Tally:
    """Append a file's records, or for "-" those of stdin, to the offsets topic.

    They get the log offsets after the newest of their partitions, which follow from their group ids
    and the number of partitions in the settings. A group that is there already gets what the file
    says of it on top. Parquet, also a folder of it, is sorted first; the JSON Lines of a partition
    must be in the order of their offsets.

    Each commit of an import carries its number and a digest of the whole source, so that an import
    that was interrupted and is repeated writes what is still missing, and one that was not writes
    nothing; `again` imports it once more. Raises Failure for a source that is not of a format's
    form or out of order, OSError if it cannot be read, AppendConflict.

    A running coordinator gives its partitions up for the time of the import, in which requests
    wait, and then loads them with what was imported (`pipeline.hold`).
    """
    num_partitions = parse_config(settings.group).offsets_topic_num_partitions
    lease_ms = settings.coordinator.lease_ms
    tally = Tally()
    progress = _Progress(say, "imported")
    with ExitStack() as stack:
        files = [stack.enter_context(_spooled_stdin())] if source == STANDARD else _files(source)
        is_parquet = Path(source).is_dir() or _is_parquet(source)
        app_id = _identity(files, num_partitions)
        if again:
            app_id = f"{app_id}-{uuid.uuid4().hex}"
        records = _read_parquet(files) if is_parquet else _read_lines(files[0])
        epoch = stack.enter_context(
            holding_partitions(root, num_partitions, lease_ms, "import", say)
        )
        log, appender = _open_log(root, settings, epoch)
        readable = _readable(_checked_order(records), num_partitions, tally)
        for version, batch in enumerate(_batches(readable)):
            rows = log.place(batch)
            if appender.append(rows, app_id, version):
                log.advance(rows)
            else:
                tally.repeated += len(batch)
            progress(tally)
    return tally


def _open_log(root: str, settings: Settings, epoch: Epoch) -> tuple[OffsetsLog, Appender]:
    """Open the offsets topic at its end."""
    handle = open_table(root, OFFSETS_TOPIC)
    ours = settings.coordinator
    log = OffsetsLog(handle, ours.segment_bytes, ours.segment_ms, clock_ms)
    return log, open_appender(table_uri(root, OFFSETS_TOPIC), epoch)


def _readable(records: Read, num_partitions: int, tally: Tally) -> Iterator[tuple[Record, int]]:
    """Pass on what can be read, with its size in bytes, and count all."""
    for where, raw in records:
        if isinstance(raw, Corrupt):
            tally.skip_corrupt(where, raw.reason)
            continue
        found = decode(raw.key, raw.value)
        if isinstance(found, UnknownKey):
            tally.skip_unknown(where, found.reason)
        elif isinstance(found, Corrupt):
            tally.skip_corrupt(where, found.reason)
        else:
            tally.carried(found.is_tombstone)
            partition = partition_for(found.group_id, num_partitions)
            yield found.record(partition, raw.timestamp, REASON), raw.size


def _identity(files: Sequence[Path], num_partitions: int) -> str:
    """Name an import by all that decides what each of its batches holds."""
    digest = hashlib.sha256(f"{num_partitions} {BATCH_ROWS} {BATCH_BYTES}".encode())
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(2**20):
                digest.update(chunk)
    return f"records-import-{digest.hexdigest()}"


# --- the sources of an import -------------------------------------------------------------------

Read = Iterator[tuple[str, RawRecord | Corrupt]]


@contextmanager
def _spooled_stdin() -> Iterator[Path]:
    """Copy stdin to a file, since a source is read twice: for its digest, then for its records."""
    with tempfile.NamedTemporaryFile(prefix="group-coordinator-import-") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        yield Path(file.name)


def _files(source: str) -> list[Path]:
    path = Path(source)
    if not path.is_dir():
        return [path]
    files = sorted(path.rglob("*.parquet"))
    if not files:
        raise Failure(f"there is no .parquet file in {source}")
    return files


def _read_lines(path: Path) -> Read:
    decode_line = msgspec.json.Decoder(RawRecord).decode
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.isspace():
                continue
            where = f"line {number}"
            try:
                raw = decode_line(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                yield where, Corrupt(str(error))
            else:
                yield where, raw


def _read_parquet(files: Sequence[Path]) -> Read:
    try:
        rows = ds.dataset([str(path) for path in files], format="parquet")
    except pa.ArrowInvalid as error:
        raise Failure(f"{files[0]} is not Parquet: {error}") from error
    columns = _parquet_columns(rows.schema)
    for row in _in_order(rows, columns, ("partition", "offset")):
        where = f"partition {row['partition']} offset {row['offset']}"
        try:
            raw = msgspec.convert(row, RawRecord)
        except msgspec.ValidationError as error:
            yield where, Corrupt(str(error))
        else:
            yield where, raw


def _parquet_columns(schema: pa.Schema) -> dict[str, str]:
    """Return the columns as SQL; raises Failure, naming each that is missing or of another type."""
    kinds: dict[str, Sequence[Callable[[pa.DataType], bool]]] = {
        "partition": (pa.types.is_integer,),
        "offset": (pa.types.is_integer,),
        "timestamp": (pa.types.is_timestamp, pa.types.is_integer),
        "key": (pa.types.is_binary, pa.types.is_large_binary),
        "value": (pa.types.is_binary, pa.types.is_large_binary),
    }
    problems = []
    for name, tests in kinds.items():
        if name not in schema.names:
            problems.append(f"column {name} is missing")
        elif not any(test(schema.field(name).type) for test in tests):
            problems.append(f"column {name} cannot be {schema.field(name).type}")
    if problems:
        raise Failure(f"these are no records: {'; '.join(problems)}")
    columns = {name: f'"{name}"' for name in kinds}
    if pa.types.is_timestamp(schema.field("timestamp").type):
        columns["timestamp"] = _MILLIS
    return columns


def _checked_order(records: Read) -> Read:
    """Pass the records on; raises Failure for one that is older than the one before it.

    The last record of a key wins, so records out of order would bring old offsets back.
    """
    latest: dict[int, int] = {}
    for where, raw in records:
        if isinstance(raw, RawRecord):
            before = latest.get(raw.partition, raw.offset)
            if raw.offset < before:
                raise Failure(
                    f"{where}: offset {raw.offset} of partition {raw.partition} comes after offset "
                    f"{before}; sort the records by partition and offset, and import them anew"
                )
            latest[raw.partition] = raw.offset
        yield where, raw
