"""A file of Kafka's own binary records: its format, and the batches for reading and writing it.

A row has the source's partition and offset, and the record's timestamp, key and value (null for a
tombstone). The file is Parquet, or JSON Lines with bytes in base64 and times in ms. A record that
cannot be converted is skipped and counted; messages describe the first `DESCRIBED`.
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

# The file name of standard input and output.
STDIO = "-"
# The number of rows read at once. A group's record may have 1 MB, an offset's about 100 bytes.
READ_ROWS = 2048
# The maximum rows of a batch, and the bytes at which it ends. A repeated import must make the same
# batches, or it would write records twice: see `batch_limits`.
BATCH_ROWS = 10_000
BATCH_BYTES = 16 * 2**20
SORT_MEMORY = "256MB"
DESCRIBED = 5
PROGRESS_S = 10.0
# With a time zone, `epoch_ms` would need a DuckDB extension.
MILLIS = 'epoch_ms(CAST("timestamp" AS TIMESTAMP))'

_PARQUET = (".parquet",)
_JSON_LINES = (".jsonl", ".ndjson", ".json")


class RawRecord(Struct, frozen=True):
    """One record of a file; `partition` and `offset` are its place in the source's log."""

    partition: Int32
    offset: Int64
    timestamp: Timestamp
    key: bytes | None
    value: bytes | None

    @property
    def size(self) -> int:
        """The size of key and value, bytes."""
        return len(self.key or b"") + len(self.value or b"")


RAW_RECORDS = Table("raw_records", arrow_schema(RawRecord))


class Tally(Struct):
    """Counts of the records of an export or an import.

    `records` were exported or imported. Of these, `tombstones` delete their key, and an earlier run
    of the import wrote `repeated`. `unknown` and `corrupt` records were skipped; `named` describes
    the first `DESCRIBED` of them.
    """

    records: int = 0
    tombstones: int = 0
    repeated: int = 0
    unknown: int = 0
    corrupt: int = 0
    named: list[str] = []

    def count(self, is_tombstone: bool) -> None:
        """Count a record that is exported or imported."""
        self.records += 1
        self.tombstones += is_tombstone

    def skip_unknown(self, where: str, why: str) -> None:
        """Count a record of an unknown type."""
        self.unknown += 1
        self._describe(where, why)

    def skip_corrupt(self, where: str, why: str) -> None:
        """Count a record that cannot be decoded or encoded."""
        self.corrupt += 1
        self._describe(where, why)

    def _describe(self, where: str, why: str) -> None:
        if len(self.named) < DESCRIBED:
            self.named.append(f"{where}: {why}")

    def __str__(self) -> str:
        carried = f"{self.records} records, {self.tombstones} of them tombstones"
        return f"{carried}; skipped {self.unknown} unknown and {self.corrupt} corrupt"


Say = Callable[[str], None]


def to_stderr(text: str) -> None:
    """Print a line to stderr, because records may be written to stdout."""
    print(text, file=sys.stderr)


class Progress:
    """The progress reports of a long export or import, one every `PROGRESS_S` seconds."""

    def __init__(self, say: Say, verb: str) -> None:
        self._say = say
        self._verb = verb
        self._next = time.monotonic() + PROGRESS_S

    def __call__(self, tally: Tally) -> None:
        """Report the tally if `PROGRESS_S` have passed since the last report."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_S
            self._say(f"{self._verb} {tally} so far")


def is_parquet(name: str) -> bool:
    """Return whether the file is Parquet, by its ending; raises Failure for an unknown one."""
    ending = Path(name).suffix.lower()
    if name == STDIO or ending in _JSON_LINES:
        return False
    if ending in _PARQUET:
        return True
    raise Failure(f"{name} must end in .jsonl or .parquet, which determines its format")


def batches(items: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Group items into batches of at most `BATCH_ROWS`, which end at `BATCH_BYTES`.

    Each item comes with its size in bytes.
    """
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


def batch_limits() -> str:
    """Return the limits of a batch as text, which is part of an import's digest."""
    return f"{BATCH_ROWS} {BATCH_BYTES}"


def sorted_rows(
    rows: ds.Dataset, columns: dict[str, str], order: tuple[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the rows sorted by two columns; `columns` maps names to SQL expressions.

    DuckDB sorts with `SORT_MEMORY` and spills the rest to disk. Raises Failure if DuckDB cannot
    read the rows.
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
    """Read one file after the other: a scan of the dataset reads ahead without a limit."""
    for fragment in rows.get_fragments():
        yield from fragment.to_batches(
            schema=rows.schema,
            columns=names,
            batch_size=READ_ROWS,
            batch_readahead=1,
            use_threads=False,
            fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=False),
        )
