"""Retention: removal of old files, packing of small files, and deletion of unused files.

A row's age is taken from the modification time of its file, because a client may set `sent_at`
wrong or not at all. Only whole files are removed, once their newest row exceeds the retention.

Packing replaces the small files of a UTC day (and partition) by one file with the modification time
of its newest row, so a row is removed at most a day late. Delta's OPTIMIZE would give the file the
present time: in a table with few appends it would pack old rows with new ones repeatedly, and never
remove them. The packing commit declares that no data changed, so Spark's streams and this project's
tails ignore it and read the small files, which exist until VACUUM.

A local file system sets a file's modification time; in a store the writing machine does. The node
compares it with its own clock, so a clock that is wrong by a minute shifts the removal by a minute.
Answers are kept a day longer than packing alone requires, so clocks may be wrong by a day. If a
client's clock is wrong by more, requests may outlive their answers, and a coordinator without its
streaming checkpoint decides them again; or requests are removed unanswered.

If a node's clock differs from the store's by more than ten minutes, the node removes nothing there
(`pipeline.delta.store_check`). A clock that is set ahead by days removes files that many days too
early, as in Kafka.
"""

from __future__ import annotations

import logging
import tempfile
import time
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties
from msgspec import Struct

from group_coordinator.pipeline.delta import (
    STORE_FAILS,
    DataFile,
    Engine,
    TableFiles,
    UnfitRows,
    check_clock,
    clean_log,
    count_bytes,
    count_records,
    data_files,
    is_table,
    local_folder,
    open_delta,
    refresh,
)
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.settings import DAY_MS
from group_coordinator.pipeline.tables import retention_properties, table_uri
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

    from deltalake import DeltaTable

    from group_coordinator.pipeline.settings import UpkeepSettings

log = logging.getLogger(__name__)

# Maximum size of a packed file, bytes. A file of at least half this size is not packed.
PACKED_BYTES = 128 << 20
# Fewer than LEAST_FILES small files are not worth a commit. At most MOST_FILES are opened at once.
LEAST_FILES = 8
MOST_FILES = 2_000


class RetentionResult(Struct, frozen=True):
    """The result of retention for one table; `failure` is the error that stopped it."""

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
        """Return the result from a table's files before and after; `started` in monotonic s."""
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
        """Return the result as one line of text."""
        if self.failure is not None:
            return f"{self.table}: {self.failure}"
        return (
            f"{self.table}: {self.records_before:,} -> {self.records_after:,} records, "
            f"{self.files_before:,} -> {self.files_after:,} files, "
            f"{self.bytes_before:,} -> {self.bytes_after:,} bytes in {self.seconds:.1f} s"
        )


def retentions(settings: UpkeepSettings) -> list[tuple[Table, int | None]]:
    """Return each table with its retention, ms; None keeps all rows."""
    return [
        (REQUESTS, settings.requests_retention_ms),
        # A rejection replaces the response to an event that cannot be answered.
        (REJECTED_REQUESTS, settings.responses_retention_ms),
        (RESPONSES, settings.responses_retention_ms),
        (GROUP_EVENTS, settings.group_events_retention_ms),
        (OFFSETS_HISTORY, settings.offsets_history_retention_ms),
        # Compaction removes its records; its small files are packed as in the other tables.
        (OFFSETS_TOPIC, None),
        # The cluster state is the fold of all decisions. They are few.
        (COORDINATORS, None),
        # The index of topics' records is kept too.
        (TOPIC_INDEX, None),
        # One row for each start and stop of a gateway.
        (GATEWAYS, None),
    ]


def retain(
    root: str,
    settings: UpkeepSettings,
    now_ms: int,
    say: Callable[[str], None] = log.info,
) -> list[RetentionResult]:
    """Remove, pack and vacuum files of every table; a failure of one table does not stop the run.

    A run that is killed can be repeated. Missing tables are skipped. `now_ms` is compared with the
    files' modification times. `say` receives a text before each table; it may raise to stop the
    run.
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
                limit = f"timestamp_millis({now_ms - retention_ms})"
                files.rewrite(due, [], predicate=f"_metadata.file_modification_time < {limit}")
        for batch in packs(data_files(handle)):
            _pack(engine, files, batch)
    vacuum(handle, name, settings.vacuum_retention_hours)
    clean_log(handle)
    return RetentionResult.of(name, before, data_files(handle), started)


def _pack(engine: Engine, files: TableFiles, batch: Sequence[DataFile]) -> None:
    """Replace the files of a batch by one file.

    A file that is damaged, or has rows that do not fit the table, is found by bisection and left
    unchanged, so that it does not prevent the packing of its table. A failure for another reason
    fails the whole table.
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
    """Yield the batches of small files to pack: each of one partition and UTC day, oldest first."""

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


# Each append that commits first costs a commit of delta-rs one attempt. Its default number of
# attempts is too small for tables with frequent appends.
_MANY_RETRIES = CommitProperties(max_commit_retries=1_000)


def vacuum(handle: DeltaTable, name: str, retention_hours: int) -> int:
    """Delete the files that no version of the last `retention_hours` needs; return their number.

    These include the files of killed rewrites and appends. Table `name` gets properties with which
    its log retains removed files for the same time. Raises ClockSkew if this machine's clock
    differs too much from the store's, because a file's age is the difference of the two.
    """
    check_clock(handle.table_uri)
    refresh(handle)
    wanted = retention_properties(name, retention_hours)
    if not wanted.items() <= handle.metadata().configuration.items():
        handle.alter.set_table_properties(wanted, commit_properties=_MANY_RETRIES)
    options: dict[str, Any] = {
        "retention_hours": retention_hours,
        "enforce_retention_duration": False,
        "full": True,
    }
    # A VACUUM is two commits; without files to delete the table stays at its version.
    if not handle.vacuum(dry_run=True, **options):
        return 0
    return len(
        handle.vacuum(
            dry_run=False,
            commit_properties=_MANY_RETRIES,
            **options,
        )
    )
