"""Retention: old files are removed, small files are packed, and unused files are deleted.

A row's age is counted from when it was written, which is its file's modification time, and not from
a time within the row: a producer may set `sent_at` wrong, or not at all, and its request must be
answered all the same. Only whole files are removed, once their newest row is past the retention, so
that nothing is rewritten.

Packing makes one file of the many small files of a UTC day (and partition), and gives it the
modification time of its newest row: a row is removed at most a day late. Delta's OPTIMIZE cannot be
used: its file is as young as the OPTIMIZE, and in a quiet table it would pack old rows with new
ones again and again, so that they are never removed. The commit of a packed file says that no data
changed: Spark's streams and our tails ignore it and read the small files, which stay until VACUUM.

Clocks. In a local folder the file system gives a file its modification time, elsewhere the machine
that writes it does, and the node that runs retention compares it with its own clock. A clock that
is wrong by a minute moves what is removed by a minute. Up to a day is allowed for: answers are kept
a day longer than packing alone requires, so that none is removed before its request. With a
client's clock wrong by more, its requests may outlive their answers, and a coordinator that starts
without its streaming checkpoint decides them again; or they are removed by the next run, answered
or not. A node whose own clock is wrong by more than ten minutes against the store's removes and
deletes nothing there (`pipeline.delta.store_check`); on a local disk the two are one clock, and one
that is set ahead by days removes what is that much younger, as in Kafka.
"""

from __future__ import annotations

import logging
import tempfile
import time
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.pipeline.delta.checkpoint import clean_log
from group_coordinator.pipeline.delta.data_files import (
    DataFile,
    count_bytes,
    count_records,
    data_files,
)
from group_coordinator.pipeline.delta.engine import Engine, UnfitRows
from group_coordinator.pipeline.delta.failures import STORE_FAILS
from group_coordinator.pipeline.delta.log import is_table
from group_coordinator.pipeline.delta.store_check import check_clock
from group_coordinator.pipeline.delta.table import local_folder, open_delta
from group_coordinator.pipeline.delta.table_files import TableFiles
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.pipeline.upkeep.vacuum import vacuum
from group_coordinator.pipeline.upkeep_settings import DAY_MS
from group_coordinator.schemas.tables import (
    COORDINATORS,
    GATEWAYS,
    GROUP_EVENTS,
    OFFSETS_HISTORY,
    OFFSETS_TOPIC,
    REJECTED_REQUESTS,
    REQUESTS,
    RESPONSES,
    TOPIC_INDEX,
    Table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from group_coordinator.pipeline.upkeep_settings import UpkeepSettings

log = logging.getLogger(__name__)

# The size of a packed file, bytes; a file of half the size is not packed again.
PACKED_BYTES = 128 << 20
# Fewer small files are not worth a commit, and more are not opened at once.
LEAST_FILES = 8
MOST_FILES = 2_000


class RetentionResult(Struct, frozen=True):
    """What retention did to one table; `failure` says why it could not go on."""

    table: str
    records_before: int = 0
    records_after: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    seconds: float = 0.0
    failure: str | None = None

    @classmethod
    def of(
        cls, table: str, before: Sequence[DataFile], after: Sequence[DataFile], started: float
    ) -> RetentionResult:
        """Return what became of a table's files since `started`, monotonic s."""
        return cls(
            table=table,
            records_before=count_records(before),
            records_after=count_records(after),
            files_before=len(before),
            files_after=len(after),
            bytes_before=count_bytes(before),
            bytes_after=count_bytes(after),
            seconds=time.monotonic() - started,
        )

    def line(self) -> str:
        """Return the result as one line."""
        if self.failure is not None:
            return f"{self.table}: {self.failure}"
        return (
            f"{self.table}: {self.records_before:,} -> {self.records_after:,} records, "
            f"{self.files_before:,} -> {self.files_after:,} files, "
            f"{self.bytes_before:,} -> {self.bytes_after:,} bytes in {self.seconds:.1f} s"
        )


def retentions(settings: UpkeepSettings) -> list[tuple[Table, int | None]]:
    """Return each table with its retention, ms; None for a table whose rows stay."""
    return [
        (REQUESTS, settings.requests_retention_ms),
        # A rejection is the answer to a request that names nobody to answer.
        (REJECTED_REQUESTS, settings.responses_retention_ms),
        (RESPONSES, settings.responses_retention_ms),
        (GROUP_EVENTS, settings.group_events_retention_ms),
        (OFFSETS_HISTORY, settings.offsets_history_retention_ms),
        # Compaction removes its records; its small files are packed as in the other tables.
        (OFFSETS_TOPIC, None),
        # Every decision stays: the cluster state is folded from all decisions, and they are few.
        (COORDINATORS, None),
        # The index of a topic's records stays as well.
        (TOPIC_INDEX, None),
        # A row for each start and stop of a gateway.
        (GATEWAYS, None),
    ]


def retain(
    root: str,
    settings: UpkeepSettings,
    now_ms: int,
    say: Callable[[str], None] = log.info,
) -> list[RetentionResult]:
    """Remove, pack and vacuum in every table; a failure in one table does not stop the others.

    Killed at any point and run again, it continues from its last commit. A table that does not
    exist is left out. `now_ms` is compared with the modification times that the writers' clocks
    gave.
    """
    results = []
    for table, retention_ms in retentions(settings):
        uri = table_uri(root, table)
        if not is_table(uri):
            continue
        say(f"retention: {table.name}")
        try:
            results.append(_retain_table(table.name, uri, retention_ms, settings, now_ms))
        except STORE_FAILS as error:
            results.append(RetentionResult(table.name, failure=first_line(error)))
    return results


def _retain_table(
    name: str, uri: str, retention_ms: int | None, settings: UpkeepSettings, now_ms: int
) -> RetentionResult:
    started = time.monotonic()
    if local_folder(uri) is None:
        check_clock(uri)
    handle = open_delta(uri)
    before = data_files(handle)
    with (
        tempfile.TemporaryDirectory(prefix="retention-") as scratch,
        Engine(settings.log_cleaner_memory, settings.log_cleaner_threads, Path(scratch)) as engine,
    ):
        files = TableFiles(handle, engine.scratch)
        if retention_ms is not None:
            due = [file for file in before if file.modified_ms < now_ms - retention_ms]
            if due:
                files.rewrite(due, [])
        for batch in packs(data_files(handle)):
            _pack(engine, files, batch)
    vacuum(handle, name, settings.vacuum_retention_hours)
    clean_log(handle)
    return RetentionResult.of(name, before, data_files(handle), started)


def _pack(engine: Engine, files: TableFiles, batch: Sequence[DataFile]) -> None:
    """Make one file of a batch.

    A file that is damaged, or whose rows do not fit the table, stays as it is: it fails the batch,
    and is found by halves. Otherwise one such file would keep all files of its table from being
    packed until it is past the retention. What fails for another reason fails the table.
    """
    engine.show("small_files", files, batch)
    newest_ms = max(file.modified_ms for file in batch)
    try:
        packed = files.write(engine, "SELECT * FROM small_files", batch[0].partition, newest_ms)
    except Failure as error:
        if len(batch) == 1:
            (file,) = batch
            if not isinstance(error, UnfitRows) and files.why_damaged(file) is None:
                raise
            log.warning("%s is not packed: %s", file.path, error)
            return
        middle = len(batch) // 2
        _pack(engine, files, batch[:middle])
        _pack(engine, files, batch[middle:])
    else:
        files.rewrite(batch, [] if packed is None else [packed], data_change=False)


def packs(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Yield the small files that become one file: of one partition and UTC day, oldest first."""

    def drawer(file: DataFile) -> tuple[list[tuple[str, str]], int]:
        values = sorted((name, str(value)) for name, value in file.partition.items())
        return values, file.modified_ms // DAY_MS

    small = [
        file
        for file in files
        if file.size < PACKED_BYTES // 2 and None not in file.partition.values()
    ]
    for _, together in groupby(sorted(small, key=drawer), key=drawer):
        batch: list[DataFile] = []
        for file in together:
            if len(batch) == MOST_FILES or count_bytes(batch) + file.size > PACKED_BYTES:
                yield batch
                batch = []
            batch.append(file)
        if len(batch) >= LEAST_FILES:
            yield batch
