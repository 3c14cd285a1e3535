"""Fetcher: the thread that reads a member's records ahead. Source: Kafka's Fetcher.

`coordinator.consumer.fetch_buffer` decides which partitions to fetch, and keeps the records until
`poll` returns them. The thread also looks up offsets, because `TableTopics` may be used by one
thread only.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError
from msgspec import Struct

from group_coordinator.coordinator.consumer.consumer_errors import (
    CoordinatorTimeoutError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from group_coordinator.coordinator.consumer.consumer_settings import AutoOffsetReset
from group_coordinator.coordinator.consumer.fetch_buffer import CompletedFetch, FetchBuffer
from group_coordinator.pipeline import background
from group_coordinator.pipeline.client.consumer_record import bounds_of
from group_coordinator.pipeline.client.member_driver import now_ms
from group_coordinator.pipeline.clock import sleep
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.topics import (
    CannotFollow,
    OffsetOutOfRange,
    TableTopics,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from group_coordinator.coordinator.consumer.consumer_settings import ConsumerSettings
    from group_coordinator.coordinator.consumer.protocol import TopicPartition
    from group_coordinator.coordinator.consumer.subscription_state import SubscriptionState
    from group_coordinator.pipeline.topics import Record

log = logging.getLogger(__name__)

T = TypeVar("T")
Question = Callable[[TableTopics], T]

# The interval of polls for new rows while a partition waits for some, ms.
LOOK_EVERY_MS = 100
_END_S = 30.0
# The maximum number of records in one read of a partition, however small they are.
_MOST_RECORDS = 50_000
# Transient errors: of the store, or of a table that is being written.
_PASSING = (OSError, DeltaError, pa.ArrowException)


class _QueuedQuestion(Struct, eq=False):
    """A lookup, the topics that it reads, and the future of its result."""

    topics: Collection[str]
    question: Question[Any]
    answer: Future[Any]


class _Work(NamedTuple):
    """The fetches and lookups that a FetchBuffer wants at one time."""

    wanted: dict[TopicPartition, int]
    positions: dict[TopicPartition, int]
    lookup: int
    resets: dict[TopicPartition, AutoOffsetReset]


class Fetcher:
    """The read-ahead thread of one member.

    `arrived` is called, in the thread, when `collect` has something new. With `whole_rows`, a
    record's value is its whole row as JSON instead of the topic's value.
    """

    def __init__(
        self,
        root: str,
        settings: ConsumerSettings,
        whole_rows: bool,
        arrived: Callable[[], None],
    ) -> None:
        self._root = root
        self._settings = settings
        self._whole_rows = whole_rows
        self._arrived = arrived
        self._changed = threading.Condition(threading.Lock())
        self._buffer: FetchBuffer[Record] = FetchBuffer(settings)
        self._questions: deque[_QueuedQuestion] = deque()
        self._stopping = False
        self._defect: Exception | None = None
        # Used by the thread only.
        self._names: frozenset[str] = frozenset()
        self._logs = TableTopics(root, self._names, whole_rows=whole_rows)
        self._looked_at = -LOOK_EVERY_MS
        # Fetches that together are smaller than fetch.min.bytes, and since when they are held, ms.
        self._held: dict[TopicPartition, CompletedFetch[Record]] = {}
        self._held_since = 0
        self._told: str | None = None
        self._thread = background.start("fetcher", self._run, self._stop)

    # --- the user's thread ----------------------------------------------------------------------

    def collect(self, subscription: SubscriptionState) -> dict[TopicPartition, list[Record]]:
        """Return the next records, and have the thread fetch those after them.

        Raises OffsetOutOfRangeError, and Failure for a row that cannot be read. Raises CannotFollow
        after all records before the table's change were returned.
        """
        with self._changed:
            if self._defect is not None:
                raise self._defect
            try:
                return self._buffer.collect(subscription)
            finally:
                self._changed.notify()

    def forget_lookups(self, partitions: Collection[TopicPartition]) -> None:
        """Discard the looked-up ends of these partitions; the thread looks them up again."""
        with self._changed:
            self._buffer.discard_lookups(partitions)

    def log_end(self, partition: TopicPartition) -> int | None:
        """Return the partition's log end as of its last fetch, None before the first fetch."""
        with self._changed:
            return self._buffer.log_end(partition)

    def ask(self, topics: Collection[str], question: Question[T], timeout_ms: int) -> T:
        """Run a lookup of these topics in the thread, after it has indexed all their rows.

        Transient errors are retried for `timeout_ms`. Raises CoordinatorTimeoutError,
        UnknownTopicOrPartitionError, and any other error of the lookup.
        """
        until = now_ms() + timeout_ms
        while True:
            answer = self._queue(topics, question)
            try:
                return answer.result(max(0, until - now_ms()) / 1000)
            except UnknownTopicOrPartition as error:
                raise UnknownTopicOrPartitionError(str(error)) from error
            except (FutureTimeout, *_PASSING) as error:
                if now_ms() + self._settings.retry_backoff_ms >= until or answer.cancel():
                    trouble = f": {error}" if answer.done() and not answer.cancelled() else ""
                    raise CoordinatorTimeoutError(
                        f"the topics of {self._root} could not be read within "
                        f"{timeout_ms} ms (default.api.timeout.ms){trouble}"
                    ) from error
            sleep(self._settings.retry_backoff_ms / 1000)

    def _queue(self, topics: Collection[str], question: Question[T]) -> Future[T]:
        answer: Future[T] = Future()
        with self._changed:
            if self._defect is not None:
                raise self._defect
            self._questions.append(_QueuedQuestion(topics, question, answer))
            self._changed.notify()
        return answer

    def close(self) -> None:
        """Stop the thread after its current read; wait at most `_END_S` seconds for it."""
        self._stop()
        self._thread.join(_END_S)
        for asked in self._questions:
            asked.answer.cancel()

    def _stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        # The work for which nothing was found. It is tried again only if it changes, or after the
        # pause.
        tried: _Work | None = None
        pause_s: float | None = None
        while not self._stopping:
            work, questions = self._await_work(tried, pause_s)
            for asked in questions:
                self._answer(asked)
            try:
                found, pause_s = self._step(work)
            # `collect` raises the error in the user's thread. Otherwise `poll` would return no more
            # records, without an error.
            except Exception as error:
                self._fail(error)
                return
            tried = None if found else work

    def _await_work(
        self, tried: _Work | None, pause_s: float | None
    ) -> tuple[_Work, list[_QueuedQuestion]]:
        """Wait for new work, for a lookup, or for the pause's end; return the work and lookups."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopping or self._questions or self._work() != tried, pause_s
            )
            if self._stopping:
                return _Work({}, {}, 0, {}), []
            questions = list(self._questions)
            self._questions.clear()
            return self._work(), questions

    def _work(self) -> _Work:
        lookup, resets = self._buffer.pending_resets()
        return _Work(self._buffer.partitions_to_fetch(), self._buffer.positions, lookup, resets)

    def _fail(self, error: Exception) -> None:
        log.exception("consumer %r reads no more", self._settings.client_id)
        with self._changed:
            self._defect = error
            for asked in self._questions:
                asked.answer.set_exception(error)
            self._questions.clear()
        self._arrived()

    def _answer(self, asked: _QueuedQuestion) -> None:
        if not asked.answer.set_running_or_notify_cancel():
            return
        try:
            self._open(asked.topics)
            self._catch_up()
            asked.answer.set_result(asked.question(self._logs))
        # The error belongs to the caller of `ask`; the thread continues with its other work.
        except Exception as error:
            asked.answer.set_exception(error)

    def _step(self, work: _Work) -> tuple[bool, float | None]:
        """Do the wanted work; return whether to continue at once, and the pause (s) if not.

        The pause is None if there is no work.
        """
        if not work.wanted and not work.resets:
            return False, None
        try:
            self._open({one.topic for one in (*work.wanted, *work.resets)})
            if work.resets:
                self._catch_up()
            more = self._look()
        except _PASSING as error:
            self._warn(error)
            return False, self._settings.retry_backoff_max_ms / 1000
        found = self._look_up(work) if work.resets else False
        found |= self._fetch(work)
        if found:
            self._arrived()
        pause_ms = LOOK_EVERY_MS
        if self._held:
            left = self._held_since + self._settings.fetch_max_wait_ms - now_ms()
            pause_ms = max(0, min(pause_ms, left))
        return found or more, pause_ms / 1000

    def _open(self, topics: Collection[str]) -> None:
        """Add these topics to those that are read."""
        if not self._names.issuperset(topics):
            self._names |= frozenset(topics)
            self._logs = TableTopics(self._root, self._names, whole_rows=self._whole_rows)
            self._looked_at = -LOOK_EVERY_MS

    def _look(self) -> bool:
        """Poll for new rows if the interval is over; return whether there may be more."""
        if now_ms() - self._looked_at < LOOK_EVERY_MS:
            return False
        if self._logs.poll():
            return True
        self._looked_at = now_ms()
        return False

    def _catch_up(self) -> None:
        """Index all rows that the topics have now."""
        while self._logs.poll() and not self._stopping:
            pass

    def _look_up(self, work: _Work) -> bool:
        """Look up the log starts or ends for the resets; return whether any was found."""
        found: dict[TopicPartition, tuple[AutoOffsetReset, int | Exception]] = {}
        for one, reset in work.resets.items():
            try:
                bounds = bounds_of(self._logs, one)
            except UnknownTopicOrPartition:
                # The member's catalogue is newer than this thread's.
                continue
            except Failure as error:
                found[one] = reset, error
                continue
            found[one] = reset, bounds[0 if reset is AutoOffsetReset.EARLIEST else 1]
        with self._changed:
            self._buffer.complete_lookups(work.lookup, found)
        return bool(found)

    def _fetch(self, work: _Work) -> bool:
        """Read the wanted partitions; return whether anything was delivered to the buffer.

        It stops once the records have fetch.max.bytes.
        """
        settings = self._settings
        held, self._held = self._held, {}
        ends: dict[TopicPartition, int] = {}
        done: list[CompletedFetch[Record]] = []
        size = 0
        for one, offset in work.wanted.items():
            if self._stopping or (done and size >= settings.fetch_max_bytes):
                break
            fetch = self._read(work, one, offset, held, ends)
            if fetch is not None:
                done.append(fetch)
                size += fetch.size
        if not held:
            self._held_since = now_ms()
        waited = now_ms() - self._held_since >= settings.fetch_max_wait_ms
        failed = any(fetch.error is not None for fetch in done)
        deliver = bool(done) and (size >= settings.fetch_min_bytes or waited or failed)
        if not deliver:
            self._held = {fetch.partition: fetch for fetch in done}
        with self._changed:
            for one, end in ends.items():
                self._buffer.update_log_end(one, end)
            for fetch in done if deliver else ():
                self._buffer.add(fetch)
        return deliver

    def _read(
        self,
        work: _Work,
        one: TopicPartition,
        offset: int,
        held: Mapping[TopicPartition, CompletedFetch[Record]],
        ends: dict[TopicPartition, int],
    ) -> CompletedFetch[Record] | None:
        """Fetch a partition from `offset`; None if there is neither a record nor an error.

        A held fetch is returned as it is if the partition has not grown since.
        """
        topic, number = one
        records: list[Record] = []
        error: Exception | None = None
        try:
            ends[one] = end = self._logs.log_end(topic, number)
            before = held.get(one)
            if before is not None and before.offset == offset and before.next_offset == end:
                return before
            records = self._logs.read(
                topic, number, offset, self._settings.max_partition_fetch_bytes, _MOST_RECORDS
            )
            if not records:
                error = self._end_of_topic(work, topic)
        except UnknownTopicOrPartition:
            # A topic without records, or the member's catalogue is newer than this thread's.
            return None
        except OffsetOutOfRange as out:
            log.warning("%s: auto.offset.reset is %s", out, self._settings.auto_offset_reset.value)
            error = OffsetOutOfRangeError(f"{out}, and auto.offset.reset is 'none'")
        except Failure as failure:
            error = failure
        except _PASSING as failure:
            self._warn(failure)
            return None
        if not records and error is None:
            return None
        size = sum(len(each.key or b"") + len(each.value or b"") for each in records)
        return CompletedFetch(one, offset, records, size, error)

    def _end_of_topic(self, work: _Work, topic: str) -> CannotFollow | None:
        """Return the error that ends a topic, once all records before it were returned.

        So a program that ends with this error has got all records of its partitions.
        """
        problem = self._logs.problems().get(topic)
        if not isinstance(problem, CannotFollow):
            return None
        if any(
            position < self._logs.log_end(topic, one.partition)
            for one, position in work.positions.items()
            if one.topic == topic
        ):
            return None
        return type(problem)(f"topic {topic!r}: {problem}")

    def _warn(self, error: Exception) -> None:
        """Log a transient error, unless it repeats the last one."""
        if str(error) != self._told:
            log.warning("the topics of %s cannot be read: %s", self._root, error)
        self._told = str(error)
