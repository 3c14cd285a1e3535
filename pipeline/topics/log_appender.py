"""Appending to a topic's own table: the batches of many producers become one commit.

The commit assigns the offsets. If two gateways append at once, only one can create the next version
of the table. The other reads that commit. For partitions to which it did not append, the same files
are committed as the version after it. For all other partitions, the rows get new offsets and their
files are written again. Offsets are a column, so that every reader of Delta tables has them.

Files are seldom written again: two processes that appended to one partition as fast as they could
wrote 1.02 files per append of 100 records, and 1.03 to 1.25 per append of 5,000. With two
partitions they wrote 1 file each.

If the outcome of an append is unknown, the log settles it, because file names are unique.

Source of the rejections: Apache Kafka, UnifiedLog.append and ProducerAppendInfo.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from deltalake.exceptions import DeltaError
from msgspec import Struct, structs

from group_coordinator.pipeline.clock import Freshness, back_off, clock_ms, monotonic
from group_coordinator.pipeline.delta import (
    COMMITTABLE_S,
    STORE_FAILS,
    CommitStateUnknown,
    DataFile,
    Layout,
    LiveWriter,
    open_store,
    write_rows,
)
from group_coordinator.pipeline.errors import Failure, without_traceback
from group_coordinator.pipeline.tables import log_end_id
from group_coordinator.pipeline.topics.producer_state import (
    NO_PRODUCER,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    ProducerBatch,
    ProducerStateManager,
    retained_batches,
)
from group_coordinator.pipeline.topics.record_batch import to_rows
from group_coordinator.pipeline.topics.segments import DELETED, Segments, encode_segment_stats
from group_coordinator.pipeline.topics.topic_errors import (
    AppendTimeout,
    UnknownTopicOrPartition,
    naming_topic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from group_coordinator.pipeline.topics.record_batch import NewBatch
    from group_coordinator.schemas.rows import TopicTable

log = logging.getLogger(__name__)

# The most commits that a log keeps, however young. Opening the table lists them; 36,000 take 470
# ms. A reader that lags further reads the whole table again.
MOST_COMMITS = 36_000
# How long the log is read to find out whether a commit exists, s.
_SETTLE_S = 10.0
# The maximum number of producers and partitions with a remembered failed batch.
_MOST_UNWRITTEN = 10_000
# Columns that a dictionary makes shorter, and columns with statistics that readers use.
_REPEATING = ["topic", "timestampType", "key"]
_BOUNDED = ["offset", "timestamp"]


class Appended(Struct, frozen=True):
    """The position of a batch in the log.

    `append_time` is the timestamp (ms) of its records if the topic uses LogAppendTime.
    """

    base_offset: int
    log_start: int
    append_time: int | None = None


# The result of a batch. A failed batch does not affect the others.
Outcome = Appended | Failure


class _AppendPlan:
    """The placement of batches after the log's present end: files to write, and outcomes.

    An outcome is the batch's base offset, or the Failure with which it is rejected.
    """

    def __init__(
        self,
        batches: Sequence[NewBatch],
        segments: Segments,
        unwritten: Mapping[tuple[int, int, int], int],
    ) -> None:
        self.placed: dict[int, list[tuple[NewBatch, int]]] = {}
        self.ends: dict[int, int] = {}
        self.outcomes: list[int | Failure] = []
        self._producers: dict[int, ProducerStateManager] = {}
        self._unwritten = unwritten
        for batch in batches:
            try:
                self.outcomes.append(self._place(batch, segments))
            except (OutOfOrderSequence, InvalidProducerEpoch) as error:
                self.outcomes.append(without_traceback(error))

    @property
    def refuses(self) -> bool:
        return any(isinstance(each, Failure) for each in self.outcomes)

    def _place(self, batch: NewBatch, segments: Segments) -> int:
        number = batch.partition
        partition = segments.partition(number)
        base = self.ends.get(number, partition.log_end)
        if batch.producer_id != NO_PRODUCER:
            producers = self._producers.get(number)
            if producers is None:
                producers = self._producers[number] = ProducerStateManager(partition.producers)
            who = batch.producer_id, batch.producer_epoch, batch.first_sequence
            duplicate = producers.find_duplicate(*who, batch.last_sequence)
            if duplicate is not None:
                return duplicate
            producers.check(*who)
            first = self._unwritten.get(_series(batch), batch.first_sequence)
            if first != batch.first_sequence and not producers.last_batches(batch.producer_id):
                raise OutOfOrderSequence(
                    f"producer {batch.producer_id}: sequence {batch.first_sequence} came where "
                    f"{first} was to come, which could not be written"
                )
            producers.add(ProducerBatch(*who, batch.last_sequence, base))
        self.placed.setdefault(number, []).append((batch, base))
        self.ends[number] = base + len(batch.values)
        return base


def _series(batch: NewBatch) -> tuple[int, int, int]:
    """Return the key within which a producer's sequences are consecutive."""
    return batch.partition, batch.producer_id, batch.producer_epoch


class _UncommittedFile(Struct, frozen=True):
    """A file that is not committed yet, its base offset, and the append time of its records."""

    base: int
    file: DataFile
    begun: Freshness
    append_time: int | None


class LogAppender:
    """An appender to one topic's own table; for one thread at a time.

    Other appenders, also in other processes, may append to the same table.
    """

    def __init__(self, topic: TopicTable, is_append_time: bool) -> None:
        self._topic = topic
        self._is_append_time = is_append_time
        self._segments = Segments(topic.table, topic.table_id)
        self._writer = LiveWriter(topic.table, MOST_COMMITS)
        self._store = open_store(topic.table)
        # For each producer that the log does not know: the first sequence that could not be
        # written. The client resends that batch, and may have sent the next one already.
        self._unwritten: dict[tuple[int, int, int], int] = {}
        # Whether a commit of the current append may be in the table, or appear later.
        self._may_be_committed = False

    def append(self, batches: Sequence[NewBatch], until: float = inf) -> list[Outcome]:
        """Append in one commit; return each batch's outcome after the commit.

        A repeated batch of an idempotent producer gets the outcome of the first one. If the topic
        is deleted, each outcome is UnknownTopicOrPartition. `until` is in s of `clock.monotonic`.

        Raises CommitStateUnknown if it cannot be found out whether the commit exists. Raises
        AppendTimeout if other writers committed first until `until`, and another OSError,
        DeltaError or Failure if nothing was written. After such an error an unknown producer must
        resend the failed batch first; later batches are rejected as out of order.
        """
        try:
            outcomes = self._append(batches, until)
        except STORE_FAILS:
            self._note_unwritten(batches)
            raise
        for number, producer, epoch in list(self._unwritten):
            if self._segments.partition(number).producers.last_batches(producer):
                del self._unwritten[number, producer, epoch]
        return outcomes

    def _note_unwritten(self, batches: Sequence[NewBatch]) -> None:
        for batch in batches:
            if batch.producer_id != NO_PRODUCER:
                self._unwritten.setdefault(_series(batch), batch.first_sequence)
        # A client may use any number of producer ids.
        for series in list(self._unwritten)[:-_MOST_UNWRITTEN]:
            del self._unwritten[series]

    def _append(self, batches: Sequence[NewBatch], until: float) -> list[Outcome]:
        now = clock_ms() if self._is_append_time else None
        written: dict[int, _UncommittedFile] = {}
        self._may_be_committed = False
        self._segments.watch_files(frozenset())
        attempt = 0
        while True:
            try:
                self._segments.poll()
                # An earlier attempt may be in the log although it seemed to fail.
                if self._segments.has_watched_file:
                    break
                if self._segments.is_deleted:
                    self._discard(written)
                    gone = UnknownTopicOrPartition(f"topic {self._topic.topic!r} is deleted")
                    return [gone] * len(batches)
                plan = _AppendPlan(batches, self._segments, self._unwritten)
                if plan.refuses and self._segments.poll():
                    # Producers treat a rejection as final, and a network file system may not show a
                    # new commit to the first read. So read again.
                    continue
                self._write(plan, written, now)
                if not written or self._commit(plan, written):
                    break
                if monotonic() >= until:
                    raise AppendTimeout(
                        f"records were not appended to topic {self._topic.topic!r} in time: other "
                        f"writers committed first {attempt + 1} times"
                    )
            except CommitStateUnknown:
                raise
            except STORE_FAILS:
                self._discard(written)
                raise
            back_off(min(attempt, 4))
            attempt += 1
        times = {number: each.append_time for number, each in written.items()}
        return [
            self._outcome(*each, times.get(each[0].partition, now))
            for each in zip(batches, plan.outcomes, strict=True)
        ]

    def _outcome(self, batch: NewBatch, found: int | Failure, append_time: int | None) -> Outcome:
        if isinstance(found, Failure):
            return found
        return Appended(found, self._segments.partition(batch.partition).log_start, append_time)

    # --- files ------------------------------------------------------------------------------------

    def _write(
        self, plan: _AppendPlan, written: dict[int, _UncommittedFile], now: int | None
    ) -> None:
        for number in list(written):
            placed = plan.placed.get(number)
            known = written[number]
            is_fresh = known.begun.is_within(COMMITTABLE_S)
            if placed is None or placed[0][1] != known.base or not is_fresh:
                self._discard({number: written.pop(number)})
        for number, placed in plan.placed.items():
            if number not in written:
                written[number] = self._write_file(number, placed, now)

    def _write_file(
        self, partition: int, placed: list[tuple[NewBatch, int]], now: int | None
    ) -> _UncommittedFile:
        begun = Freshness.seen_now()
        base = placed[0][1]
        if now is not None:
            # An earlier writer's clock may be ahead of this one.
            now = max(now, self._segments.partition(partition).latest_timestamp)
        rows, times = to_rows(self._topic.topic, [batch for batch, _ in placed], base, now)
        file = write_rows(
            self._store,
            Layout(rows),
            {"partition": str(partition)},
            use_dictionary=_REPEATING,
            write_statistics=_BOUNDED,
        )
        known = [
            ProducerBatch(
                batch.producer_id,
                batch.producer_epoch,
                batch.first_sequence,
                batch.last_sequence,
                batch_base,
            )
            for batch, batch_base in placed
            if batch.producer_id != NO_PRODUCER
        ]
        span = pc.min_max(times).as_py()
        bounds = (base, base + len(times), span["min"], span["max"])
        stats = encode_segment_stats(len(times), bounds, retained_batches(known))
        return _UncommittedFile(base, structs.replace(file, stats=stats), begun, now)

    def _discard(self, written: Mapping[int, _UncommittedFile]) -> None:
        if self._may_be_committed:
            # The store may still create the commit after it reported a failure.
            return
        try:
            self._store.delete([each.file.path for each in written.values()])
        except OSError as error:
            log.info(
                "uncommitted files of %s were not deleted; VACUUM deletes them: %s",
                self._topic.table,
                error,
            )

    # --- the commit -------------------------------------------------------------------------------

    def _commit(self, plan: _AppendPlan, written: Mapping[int, _UncommittedFile]) -> bool:
        """Commit the files; return False if another writer was first. Raises CommitStateUnknown."""
        if not all(each.begun.is_within(COMMITTABLE_S) for each in written.values()):
            log.warning(
                "files for topic %s are older than half an hour and are written again",
                self._topic.topic,
            )
            return False
        files = [each.file for each in written.values()]
        moves = {
            log_end_id(number): (
                self._segments.partition(number).log_end or None,
                plan.ends[number],
            )
            for number in written
        }
        self._watch(files)
        try:
            with naming_topic(self._topic.table):
                committed = self._writer.commit(self._segments.live, files, moves, [DELETED])
        except CommitStateUnknown as error:
            log.warning("%s", error)
            self._may_be_committed = True
            return self._settle(files)
        if committed is None:
            return False
        self._segments.take_next(*committed)
        return True

    def _settle(self, files: Sequence[DataFile]) -> bool:
        """Return whether these files were committed, after a commit with unknown outcome.

        The log is read again from its newest Delta checkpoint: after a clean-up, a late commit may
        have an old version, which no new reader reads. Raises CommitStateUnknown if the log cannot
        be read for _SETTLE_S.
        """
        self._segments = Segments(self._topic.table, self._topic.table_id)
        self._watch(files)
        until = monotonic() + _SETTLE_S
        attempt = 0
        while True:
            try:
                self._segments.poll()
            except (OSError, DeltaError) as error:
                if monotonic() > until:
                    raise CommitStateUnknown(
                        f"it is not known whether records were appended to {self._topic.topic!r}: "
                        f"{error}"
                    ) from error
                back_off(attempt)
                attempt += 1
            else:
                return self._segments.has_watched_file

    def _watch(self, files: Sequence[DataFile]) -> None:
        self._segments.watch_files(frozenset(file.path for file in files))
