"""Import of Kafka's own binary records from a file into the offsets topic."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import Appender
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.ownership.hold import holding_partitions
from group_coordinator.pipeline.records.record_file import (
    MILLIS,
    STDIO,
    Progress,
    RawRecord,
    Say,
    Tally,
    batch_limits,
    batches,
    is_parquet,
    sorted_rows,
    to_stderr,
)
from group_coordinator.pipeline.tables import OffsetsLog, open_table, table_uri
from group_coordinator.schemas.decoding import DECODE_ERRORS
from group_coordinator.schemas.kafka.codec import Corrupt, UnknownKey, decode
from group_coordinator.schemas.records import CoordinatorRecord
from group_coordinator.schemas.tables import OFFSETS_TOPIC

if TYPE_CHECKING:
    from group_coordinator.pipeline.settings import Settings

REASON = "imported"
# The records of a source, each with its location for messages.
Read = Iterator[tuple[str, RawRecord | Corrupt]]


def import_(
    root: str, source: str, settings: Settings, again: bool = False, say: Say = to_stderr
) -> Tally:
    """Append the records of the file `source` to the offsets topic; "-" is stdin.

    A record's partition follows from its group id and the number of partitions in the settings; its
    log offset continues that partition's log. Imported records win over a group's own, which are
    older. A Parquet file, or a folder of them, is sorted first. JSON Lines must be ordered by
    offset within a partition.

    Each commit has a transaction identifier: a digest of the whole source, and the batch's number.
    So an import that is repeated after an interruption writes only the missing batches, and after a
    complete import nothing, unless `again` is true. Raises Failure if the source is malformed or
    out of order, OSError if it cannot be read, and AppendConflict.

    Running coordinators release their partitions during the import, and requests wait. Afterwards
    they load the partitions with the imported records (`pipeline.ownership.hold`).
    """
    num_partitions = settings.group.offsets_topic_num_partitions
    lease_ms = settings.coordinator.lease_ms
    tally = Tally()
    progress = Progress(say, "imported")
    with ExitStack() as stack:
        files = [stack.enter_context(_spooled_stdin())] if source == STDIO else _files(source)
        as_parquet = Path(source).is_dir() or is_parquet(source)
        app_id = _identity(files, num_partitions)
        if again:
            app_id = f"{app_id}-{uuid.uuid4().hex}"
        records = _read_parquet(files) if as_parquet else _read_lines(files[0])
        epoch = stack.enter_context(
            holding_partitions(root, num_partitions, lease_ms, "import", say)
        )
        handle, ours = open_table(root, OFFSETS_TOPIC), settings.coordinator
        log = OffsetsLog(handle, ours.segment_bytes, ours.segment_ms, clock_ms)
        appender = Appender(table_uri(root, OFFSETS_TOPIC), epoch)
        readable = _readable(_checked_order(records), num_partitions, tally)
        for version, batch in enumerate(batches(readable)):
            rows = log.place(batch)
            if appender.append(rows, app_id, version):
                log.advance(rows)
            else:
                tally.repeated += len(batch)
            progress(tally)
    return tally


def _readable(
    records: Read, num_partitions: int, tally: Tally
) -> Iterator[tuple[CoordinatorRecord, int]]:
    """Yield the records that can be decoded, each with its size in bytes; count all in `tally`."""
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
            tally.count(found.is_tombstone)
            partition = partition_for(found.group_id, num_partitions)
            yield found.record(partition, raw.timestamp, REASON), raw.size


def _identity(files: Sequence[Path], num_partitions: int) -> str:
    """Return the import's transaction identifier, a digest of all that determines its batches.

    These are the content of the files, the number of partitions and the limits of a batch.
    """
    digest = hashlib.sha256(f"{num_partitions} {batch_limits()}".encode())
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(2**20):
                digest.update(chunk)
    return f"records-import-{digest.hexdigest()}"


# --- the sources of an import -------------------------------------------------------------------


@contextmanager
def _spooled_stdin() -> Iterator[Path]:
    """Copy stdin to a file, because a source is read twice: for its digest and its records."""
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
            except DECODE_ERRORS as error:
                yield where, Corrupt(str(error))
            else:
                yield where, raw


def _read_parquet(files: Sequence[Path]) -> Read:
    try:
        rows = ds.dataset([str(path) for path in files], format="parquet")
    except pa.ArrowInvalid as error:
        raise Failure(f"{files[0]} is not Parquet: {error}") from error
    columns = _parquet_columns(rows.schema)
    for row in sorted_rows(rows, columns, ("partition", "offset")):
        where = f"partition {row['partition']} offset {row['offset']}"
        try:
            raw = msgspec.convert(row, RawRecord)
        except msgspec.ValidationError as error:
            yield where, Corrupt(str(error))
        else:
            yield where, raw


def _parquet_columns(schema: pa.Schema) -> dict[str, str]:
    """Return the SQL expression of each column; raises Failure for missing or unfit columns."""
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
        raise Failure(f"the file has no records to import: {'; '.join(problems)}")
    columns = {name: f'"{name}"' for name in kinds}
    if pa.types.is_timestamp(schema.field("timestamp").type):
        columns["timestamp"] = MILLIS
    return columns


def _checked_order(records: Read) -> Read:
    """Yield the records. Raises Failure if the offsets of a partition decrease.

    The last record of a key wins, so records out of order would restore old offsets.
    """
    latest: dict[int, int] = {}
    for where, raw in records:
        if isinstance(raw, RawRecord):
            before = latest.get(raw.partition, raw.offset)
            if raw.offset < before:
                raise Failure(
                    f"{where}: offset {raw.offset} of partition {raw.partition} comes after offset "
                    f"{before}; sort the records by partition and offset, and import them again"
                )
            latest[raw.partition] = raw.offset
        yield where, raw
