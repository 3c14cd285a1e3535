"""Compaction of the offsets topic to the newest record of every key, as in Kafka's log cleaner.

The cleaned part of the log is segment -1; appends begin at segment 0. The newest segment is active:
compaction never touches it, so appends and compaction never work on the same files. One commit
removes the cleaned segments and adds the kept records to segment -1, each with its log offset.

The rules follow Kafka's LogCleaner and Cleaner (log.cleaner.*, KIP-58, KIP-354):

* A key is the columns of `RECORD_KEY`, nulls included, also for records of an unknown type. The
  newest cleaned record of a key is kept, even if an uncleaned segment has a newer one.
* A record without a key (no partition, record_type, group_id or log_offset) is removed and counted,
  as Kafka removes the invalid messages of a compacted topic.
* A tombstone is removed once it is delete.retention.ms old by its timestamp. Kafka counts from the
  cleaner's first pass, a time for which a row has no column. Early removal misleads no reader: the
  same commit removes all records that the tombstone deletes, and a tail reads the appended files.
* A tombstone is kept while an uncleaned segment has an older record of its key.

Superseded offset commits and removed tombstones move to `offsets_history`, if they were in force
within offsets_history.retention.ms. `offsets_as_of` computes past offsets from them.
"""

from __future__ import annotations

import logging
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.pipeline.delta import (
    DataFile,
    Engine,
    TableFiles,
    clean_log,
    count_bytes,
    count_records,
    data_files,
)
from group_coordinator.pipeline.tables import add_missing_columns, ensure_table, open_table
from group_coordinator.pipeline.upkeep.retention import vacuum
from group_coordinator.schemas.records import OFFSET_COMMIT, RECORD_KEY, RECORD_VALUES
from group_coordinator.schemas.tables import OFFSETS_HISTORY, OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from group_coordinator.pipeline.settings import UpkeepSettings

log = logging.getLogger(__name__)

CLEAN_SEGMENT = -1
SEGMENT = "segment"
# The transaction identifier of a compaction's two commits; its version is the run's number.
TRANSACTION = "compaction"

_KEY = ", ".join(RECORD_KEY)
_SAME_KEY = " AND ".join(f"other.{name} IS NOT DISTINCT FROM newest.{name}" for name in RECORD_KEY)
_HAS_NO_VALUE = " AND ".join(f"{name} IS NULL" for name in RECORD_VALUES)
_HAS_BYTES = "key IS NOT NULL OR value IS NOT NULL"
# Of a closed segment, for the table's history.
_REMOVED_ROWS = "superseded by a newer record, an expired tombstone, or without a key"
_SAME_PLACE = "other.partition = records.partition AND other.log_offset = records.log_offset"


class CompactionResult(Struct, frozen=True):
    """The result of a compaction for the cleaned segments.

    `history` counts the records that moved to `offsets_history`, `tombstones` the removed
    tombstones, and `invalid` the removed records without a key. `skipped` is the reason if nothing
    was compacted.
    """

    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    seconds: float = 0.0
    history: int = 0
    tombstones: int = 0
    invalid: int = 0
    skipped: str | None = None

    def line(self) -> str:
        """Return the result as one line of text."""
        if self.skipped is not None:
            return f"offsets_topic: not compacted, {self.skipped}"
        return (
            f"offsets_topic: {self.records_before:,} -> {self.records_after:,} records, "
            f"{self.bytes_before:,} -> {self.bytes_after:,} bytes in {self.seconds:.1f} s; "
            f"{self.history:,} records to offsets_history, "
            f"{self.tombstones:,} tombstones and {self.invalid:,} records without a key dropped"
        )


class LogToClean(Struct, frozen=True):
    """The files of the offsets topic: clean, dirty, and the rest, which must not be touched.

    The rest are the active segment, segments that are too young, and files without a segment.
    """

    clean: list[DataFile]
    dirty: list[DataFile]
    rest: list[DataFile]

    def dirty_ratio(self) -> float:
        """Return the ratio of dirty records to all records; 1 if a file's count is unknown.

        Kafka compares bytes. Here a small append's file is mostly its footer, so a log would be
        dirty by bytes after a few records.
        """
        if any(file.records is None for file in (*self.clean, *self.dirty)):
            return 1.0
        dirty, clean = count_records(self.dirty), count_records(self.clean)
        return dirty / (dirty + clean) if dirty else 0.0


def segments(files: Sequence[DataFile], lag_ms: int, now_ms: int) -> LogToClean:
    """Divide the files into clean, dirty and the rest.

    As in Kafka, the dirty part ends before the first closed segment with a record younger than
    `lag_ms`. A file without a segment, which no writer of this project creates, belongs to the
    rest.
    """
    by_segment: dict[int, list[DataFile]] = {}
    rest: list[DataFile] = []
    for file in files:
        value = file.partition[SEGMENT]
        if value is None:
            rest.append(file)
        else:
            by_segment.setdefault(int(value), []).append(file)
    clean = by_segment.pop(CLEAN_SEGMENT, [])
    active = max(by_segment, default=CLEAN_SEGMENT)
    dirty: list[DataFile] = []
    open_end = False
    for segment, mine in sorted(by_segment.items()):
        newest = max(file.modified_ms for file in mine)
        young = lag_ms > 0 and newest > now_ms - lag_ms
        open_end = open_end or segment == active or young
        (rest if open_end else dirty).extend(mine)
    return LogToClean(clean, dirty, rest)


def compact(
    root: str,
    settings: UpkeepSettings,
    now_ms: int,
    say: Callable[[str], None] = log.info,
    force: bool = False,
) -> CompactionResult:
    """Compact the closed segments if enough records are dirty; `force` ignores the ratio.

    A run that is killed can be repeated with the same result. `say` receives a text about each
    step; it may raise to stop the run. Raises RewriteConflict if another compaction was committed
    first, Failure if a file cannot be read, DeltaError and OSError.
    """
    started = time.monotonic()
    topic = open_table(root, OFFSETS_TOPIC)
    found = segments(data_files(topic), settings.min_compaction_lag_ms, now_ms)
    skipped = _reason_to_skip(found, settings, force)
    if skipped is not None:
        return CompactionResult(skipped=skipped)
    cleaned = [*found.clean, *found.dirty]
    add_missing_columns(topic, OFFSETS_TOPIC)
    history = ensure_table(root, OFFSETS_HISTORY)
    with (
        tempfile.TemporaryDirectory(prefix="compaction-") as scratch,
        Engine(settings.log_cleaner_memory, settings.log_cleaner_threads, Path(scratch)) as engine,
    ):
        run = _CompactionRun(
            engine, TableFiles(topic, engine.scratch), TableFiles(history, engine.scratch)
        )
        say(f"compaction: reading {count_records(cleaned):,} records of {len(cleaned):,} files")
        horizon_ms = now_ms - settings.offsets_history_retention_ms
        total, invalid = run.find_newest(cleaned, horizon_ms)
        if invalid:
            log.warning("offsets_topic: %d records without a key are dropped", invalid)
        tombstones = run.drop_tombstones(found.rest, now_ms - settings.delete_retention_ms)
        moved = 0
        if settings.offsets_history_retention_ms:
            say("compaction: writing offsets_history")
            moved = run.write_history(horizon_ms)
        say("compaction: writing the newest records")
        survivors = run.write_survivors(cleaned)
    vacuum(topic, OFFSETS_TOPIC.name, settings.vacuum_retention_hours)
    clean_log(topic)
    return CompactionResult(
        records_before=total,
        records_after=count_records(survivors),
        bytes_before=count_bytes(cleaned),
        bytes_after=count_bytes(survivors),
        seconds=time.monotonic() - started,
        history=moved,
        tombstones=tombstones,
        invalid=invalid,
    )


def _reason_to_skip(found: LogToClean, settings: UpkeepSettings, force: bool) -> str | None:
    if not found.dirty:
        return "no segment was closed since, or none is past min.compaction.lag.ms"
    ratio = found.dirty_ratio()
    if not force and ratio <= settings.min_cleanable_dirty_ratio:
        wanted = settings.min_cleanable_dirty_ratio
        return f"{ratio:.0%} of the records are dirty, not more than {wanted:.0%}"
    return None


class _CompactionRun:
    def __init__(self, engine: Engine, topic: TableFiles, history: TableFiles) -> None:
        self._engine = engine
        self._topic = topic
        self._history = history
        # It rises with every compaction, because each one commits a version.
        self._number = topic.handle.version()

    def find_newest(self, files: Sequence[DataFile], horizon_ms: int) -> tuple[int, int]:
        """Create the tables `newest` and `in_force`; return how many records are there and invalid.

        `newest` has one row for each key. For a key with a later record or a tombstone, `in_force`
        has the log offset of the newest offset commit at `horizon_ms`. Invalid records have no key.
        """
        self._engine.show("all_records", self._topic, files)
        self._engine.run(
            "CREATE TEMP VIEW records AS SELECT * FROM all_records WHERE partition IS NOT NULL "
            "AND record_type IS NOT NULL AND group_id IS NOT NULL AND log_offset IS NOT NULL"
        )
        self._engine.run(
            f"""
            CREATE TEMP TABLE newest AS
            SELECT {_KEY},
                max(log_offset) AS log_offset,
                arg_max({_HAS_NO_VALUE}, log_offset) AS is_tombstone,
                arg_max(coalesce(epoch_ms(timestamp), 0), log_offset) AS written_ms,
                max(log_offset) FILTER (
                    record_type = '{OFFSET_COMMIT}'
                    AND coalesce(epoch_ms(timestamp), 0) <= {horizon_ms}
                ) AS in_force,
                count(*) AS num_records
            FROM records
            GROUP BY {_KEY}
            """
        )
        ((total,),) = self._engine.run("SELECT count(*) FROM all_records")
        ((valid,),) = self._engine.run("SELECT coalesce(sum(num_records), 0) FROM newest")
        self._engine.run(
            "CREATE TEMP TABLE in_force AS SELECT partition, in_force AS log_offset FROM newest "
            "WHERE in_force IS NOT NULL AND (in_force < log_offset OR is_tombstone)"
        )
        return total, total - int(valid)

    def drop_tombstones(self, uncleaned: Sequence[DataFile], horizon_ms: int) -> int:
        """Delete tombstones older than `horizon_ms` from `newest`; return their number.

        A tombstone stays if an uncleaned file has an older record of its key.
        """
        due = f"is_tombstone AND written_ms < {horizon_ms}"
        ((count,),) = self._engine.run(f"SELECT count(*) FROM newest WHERE {due}")
        if not count:
            return 0
        self._engine.show("uncleaned", self._topic, uncleaned)
        ((dropped,),) = self._engine.run(
            f"DELETE FROM newest WHERE {due} AND NOT EXISTS (SELECT 1 FROM uncleaned other "
            f"WHERE {_SAME_KEY} AND other.log_offset < newest.log_offset)"
        )
        return int(dropped)

    def write_history(self, horizon_ms: int) -> int:
        """Append to the history the removed offset commits that were in force after `horizon_ms`.

        The history is committed before the log loses the records. If a run was killed between the
        two commits, the history has a later run's number than the log, and the next run does not
        append its records again. Returns the number of added records.
        """
        query = (
            f"SELECT * FROM records WHERE record_type = '{OFFSET_COMMIT}' "
            f"AND NOT EXISTS (SELECT 1 FROM newest other WHERE {_SAME_PLACE}) "
            f"AND (epoch_ms(timestamp) > {horizon_ms} "
            f"OR EXISTS (SELECT 1 FROM in_force other WHERE {_SAME_PLACE}))"
        )
        if _last_run(self._history) > _last_run(self._topic):
            self._engine.show("appended", self._history, data_files(self._history.handle))
            query += f" AND NOT EXISTS (SELECT 1 FROM appended other WHERE {_SAME_PLACE})"
        added = self._history.write(self._engine, query)
        if added is None:
            return 0
        self._history.rewrite([], [added], {TRANSACTION: self._number})
        return added.records or 0

    def write_survivors(self, cleaned: Sequence[DataFile]) -> list[DataFile]:
        """Replace the cleaned files by one file of the records in `newest`; return the added files.

        The records are ordered by partition and log offset, so a partition's records are adjacent.
        """
        ((has_bytes,),) = self._engine.run(f"SELECT EXISTS (FROM records WHERE {_HAS_BYTES})")
        columns = "*" if has_bytes else "* EXCLUDE (key, value)"
        query = (
            f"SELECT {columns} FROM records "
            f"WHERE EXISTS (SELECT 1 FROM newest other WHERE {_SAME_PLACE}) "
            "ORDER BY partition, log_offset"
        )
        if not has_bytes:
            # The sort is faster without the two columns of nulls.
            query = f"SELECT *, NULL::BLOB AS key, NULL::BLOB AS value FROM ({query})"
        added = self._topic.write(self._engine, query, {SEGMENT: str(CLEAN_SEGMENT)})
        survivors = [] if added is None else [added]
        self._topic.rewrite(
            cleaned, survivors, {TRANSACTION: self._number}, predicate=_REMOVED_ROWS
        )
        return survivors


def _last_run(table: TableFiles) -> int:
    version = table.handle.transaction_version(TRANSACTION)
    return -1 if version is None else version
