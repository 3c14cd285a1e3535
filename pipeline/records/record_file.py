"""A file of Kafka's own binary records: its format, and the batches it is read and written in.

A row holds the source's partition and offset, the record's timestamp, its key, and its value, which
is null for a tombstone. The file is JSON Lines, with bytes in base64 and times in ms, or Parquet. A
record that cannot be converted is skipped and counted, and the first `NAMED` are reported.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from msgspec import Struct

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.interrupt import duckdb_interrupted
from group_coordinator.schemas.messages import Int32, Int64, Timestamp
from group_coordinator.schemas.tables import Table, arrow_schema

T = TypeVar("T")

# The name that stands for standard input and output.
STANDARD = "-"
# Rows read at once. A group's record may have a megabyte, an offset's has about a hundred bytes.
READ_ROWS = 2048
# Rows and bytes written at once. A repeated import of a source must cut the same batches, or it
# would write records twice: see `cut_of_batches`.
BATCH_ROWS = 10_000
BATCH_BYTES = 16 * 2**20
SORT_MEMORY = "256MB"
NAMED = 5
PROGRESS_S = 10.0
# `epoch_ms` needs a plain timestamp: with a zone it would need an extension to be loaded.
MILLIS = 'epoch_ms(CAST("timestamp" AS TIMESTAMP))'

_PARQUET = (".parquet",)
_JSON_LINES = (".jsonl", ".ndjson", ".json")


class RawRecord(Struct, frozen=True):
    """One record of a file. `partition` and `offset` are its place in the source's log."""

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
    """Counts of the records of an export or an import.

    `records` were carried over; `tombstones` of them delete their key, and `repeated` of them had
    been written by an earlier run of the same import. `named` describes the first skipped ones.
    """

    records: int = 0
    tombstones: int = 0
    repeated: int = 0
    unknown: int = 0
    corrupt: int = 0
    named: list[str] = []

    def carried(self, is_tombstone: bool) -> None:
        """Count a record that is carried over."""
        self.records += 1
        self.tombstones += is_tombstone

    def skip_unknown(self, where: str, why: str) -> None:
        """Count a record of an unknown type."""
        self.unknown += 1
        self._name(where, why)

    def skip_corrupt(self, where: str, why: str) -> None:
        """Count a record that cannot be read or written."""
        self.corrupt += 1
        self._name(where, why)

    def _name(self, where: str, why: str) -> None:
        if len(self.named) < NAMED:
            self.named.append(f"{where}: {why}")

    def __str__(self) -> str:
        carried = f"{self.records} records, {self.tombstones} of them tombstones"
        return f"{carried}; skipped {self.unknown} unknown and {self.corrupt} corrupt"


Say = Callable[[str], None]


def to_stderr(text: str) -> None:
    """Print a line of progress to standard error, away from the records on standard output."""
    print(text, file=sys.stderr)


class Progress:
    """Reports how far a long run is, every `PROGRESS_S`."""

    def __init__(self, say: Say, verb: str) -> None:
        self._say = say
        self._verb = verb
        self._next = time.monotonic() + PROGRESS_S

    def __call__(self, tally: Tally) -> None:
        """Report the tally if `PROGRESS_S` passed since the last report."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_S
            self._say(f"{self._verb} {tally} so far")


def is_parquet(name: str) -> bool:
    """Return whether a file's name ends as Parquet's; raises Failure for an unknown ending."""
    ending = Path(name).suffix.lower()
    if name == STANDARD or ending in _JSON_LINES:
        return False
    if ending in _PARQUET:
        return True
    raise Failure(f"{name} ends in neither .jsonl nor .parquet, which tells its format")


def batches(items: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Gather items, each given with its size in bytes, into batches that are written at once."""
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


def cut_of_batches() -> str:
    """Return the bounds that decide where `batches` cuts."""
    return f"{BATCH_ROWS} {BATCH_BYTES}"


def in_order(
    rows: ds.Dataset, columns: dict[str, str], order: tuple[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield rows sorted by two columns; `columns` maps names to SQL.

    DuckDB sorts within `SORT_MEMORY` and spills the rest to disk. Raises Failure if the rows cannot
    be read.
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
            with duckdb_interrupted(), duckdb.connect(":memory:", config=config) as connection:
                connection.register("rows_to_sort", reader)
                cursor = connection.execute(f"SELECT {selected} FROM rows_to_sort ORDER BY {by}")
                while found := cursor.fetchmany(READ_ROWS):
                    for row in found:
                        yield dict(zip(columns, row, strict=True))
        except duckdb.Error as error:
            raise Failure(f"cannot read the records: {error}") from error


def _scan(rows: ds.Dataset, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Read one file after the other: a scan of all of them reads ahead without bound."""
    for fragment in rows.get_fragments():
        yield from fragment.to_batches(
            schema=rows.schema,
            columns=names,
            batch_size=READ_ROWS,
            batch_readahead=1,
            use_threads=False,
            fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=False),
        )
