"""Fetcher: the thread that reads a member's records ahead. Source: Kafka's Fetcher.

`coordinator.consumer.fetch_buffer` decides which partitions to fetch, and keeps the records until
`poll` returns them. The thread also looks up offsets, because only one thread may use
`TableTopics`.
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
from group_coordinator.coordinator.consumer.fetch_buffer import (
    CompletedFetch,
    FetchBuffer,
    LookupResults,
)
from group_coordinator.pipeline import background
from group_coordinator.pipeline.client.consumer_record import log_bounds
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
Lookup = Callable[[TableTopics], T]

# The interval of polls for new rows while a partition waits for some, ms.
POLL_INTERVAL_MS = 100
_CLOSE_TIMEOUT_S = 30.0
# The maximum number of records in one read of a partition, however small they are.
_MAX_RECORDS = 50_000
# Transient errors: of the store, or of a table that is being written.
_TRANSIENT = (OSError, DeltaError, pa.ArrowException)


class _QueuedLookup(Struct, eq=False):
    topics: Collection[str]
    lookup: Lookup[Any]
    answer: Future[Any]


class _FetchPlan(NamedTuple):
    """The fetches and lookups that a FetchBuffer wants at one time."""

    to_fetch: dict[TopicPartition, int]
    positions: dict[TopicPartition, int]
    epoch: int
    resets: dict[TopicPartition, AutoOffsetReset]


class Fetcher:
    """The read-ahead thread of one member.

    The thread calls `on_records` when `collect` has something new. With `whole_rows`, a record's
    value is its whole row as JSON instead of the topic's value.
    """

    def __init__(
        self,
        root: str,
        settings: ConsumerSettings,
        whole_rows: bool,
        on_records: Callable[[], None],
    ) -> None:
        self._root = root
        self._settings = settings
        self._whole_rows = whole_rows
        self._on_records = on_records
        self._changed = threading.Condition(threading.Lock())
        self._buffer: FetchBuffer[Record] = FetchBuffer(settings)
        self._lookups: deque[_QueuedLookup] = deque()
        self._stopping = False
        self._defect: Exception | None = None
        # Used by the thread only.
        self._names: frozenset[str] = frozenset()
        self._logs = TableTopics(root, self._names, whole_rows=whole_rows)
        self._polled_at = -POLL_INTERVAL_MS
        # Fetches that together are smaller than fetch.min.bytes, and since when they are held, ms.
        self._held: dict[TopicPartition, CompletedFetch[Record]] = {}
        self._held_since = 0
        self._last_warning: str | None = None
        self._thread = background.start("fetcher", self._run, self._stop)

    # --- the user's thread ----------------------------------------------------------------------

    def collect(self, subscription: SubscriptionState) -> dict[TopicPartition, list[Record]]:
        """Return the next records, and have the thread fetch those after them.

        Raises OffsetOutOfRangeError, and Failure for a row that cannot be read. Raises
        TableReplaced as soon as it is found, and another CannotFollow after all records before the
        table's change were returned.
        """
        with self._changed:
            if self._defect is not None:
                raise self._defect
            try:
                return self._buffer.collect(subscription)
            finally:
                self._changed.notify()

    def discard_lookups(self, partitions: Collection[TopicPartition]) -> None:
        """Discard the looked-up log starts and ends; the thread looks them up again."""
        with self._changed:
            self._buffer.discard_lookups(partitions)

    def log_end(self, partition: TopicPartition) -> int | None:
        """Return the partition's log end as of its last fetch, None before the first fetch."""
        with self._changed:
            return self._buffer.log_end(partition)

    def look_up(self, topics: Collection[str], lookup: Lookup[T], timeout_ms: int) -> T:
        """Run a lookup of these topics in the thread, after it has indexed all their rows.

        Transient errors are retried for `timeout_ms`. Raises CoordinatorTimeoutError,
        UnknownTopicOrPartitionError, and any other error of the lookup.
        """
        deadline = now_ms() + timeout_ms
        while True:
            answer = self._enqueue(topics, lookup)
            try:
                return answer.result(max(0, deadline - now_ms()) / 1000)
            except UnknownTopicOrPartition as error:
                raise UnknownTopicOrPartitionError(str(error)) from error
            except (FutureTimeout, *_TRANSIENT) as error:
                if now_ms() + self._settings.retry_backoff_ms >= deadline or answer.cancel():
                    detail = f": {error}" if answer.done() and not answer.cancelled() else ""
                    raise CoordinatorTimeoutError(
                        f"the topics of {self._root} could not be read within "
                        f"{timeout_ms} ms (default.api.timeout.ms){detail}"
                    ) from error
            sleep(self._settings.retry_backoff_ms / 1000)

    def _enqueue(self, topics: Collection[str], lookup: Lookup[T]) -> Future[T]:
        answer: Future[T] = Future()
        with self._changed:
            if self._defect is not None:
                raise self._defect
            self._lookups.append(_QueuedLookup(topics, lookup, answer))
            self._changed.notify()
        return answer

    def close(self) -> None:
        """Stop the thread after its current read; wait at most `_CLOSE_TIMEOUT_S` for it."""
        self._stop()
        self._thread.join(_CLOSE_TIMEOUT_S)
        for queued in self._lookups:
            queued.answer.cancel()

    def _stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        # The last plan that found nothing. It is tried again after the pause, or once it changes.
        fruitless: _FetchPlan | None = None
        pause_s: float | None = None
        while not self._stopping:
            plan, lookups = self._await_plan(fruitless, pause_s)
            for queued in lookups:
                self._run_lookup(queued)
            try:
                progressed, pause_s = self._step(plan)
            # `collect` raises the error in the user's thread. Otherwise `poll` would return no more
            # records, without an error.
            except Exception as error:
                self._fail(error)
                return
            fruitless = None if progressed else plan

    def _await_plan(
        self, fruitless: _FetchPlan | None, pause_s: float | None
    ) -> tuple[_FetchPlan, list[_QueuedLookup]]:
        """Wait for new work, a lookup, or the end of the pause; return the work and lookups."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopping or self._lookups or self._plan() != fruitless, pause_s
            )
            if self._stopping:
                return _FetchPlan({}, {}, 0, {}), []
            lookups = list(self._lookups)
            self._lookups.clear()
            return self._plan(), lookups

    def _plan(self) -> _FetchPlan:
        epoch, resets = self._buffer.pending_resets()
        return _FetchPlan(self._buffer.partitions_to_fetch(), self._buffer.positions, epoch, resets)

    def _fail(self, error: Exception) -> None:
        log.exception(
            "the fetcher of consumer %r stopped after an unexpected error", self._settings.client_id
        )
        with self._changed:
            self._defect = error
            for queued in self._lookups:
                queued.answer.set_exception(error)
            self._lookups.clear()
        self._on_records()

    def _run_lookup(self, queued: _QueuedLookup) -> None:
        if not queued.answer.set_running_or_notify_cancel():
            return
        try:
            self._open(queued.topics)
            self._catch_up()
            queued.answer.set_result(queued.lookup(self._logs))
        # The error belongs to the caller of `look_up`; the thread continues with its other work.
        except Exception as error:
            queued.answer.set_exception(error)

    def _step(self, plan: _FetchPlan) -> tuple[bool, float | None]:
        """Do the planned work; return whether to continue at once, and the pause (s) if not.

        The pause is None if there is no work.
        """
        if not plan.to_fetch and not plan.resets:
            return False, None
        try:
            self._open({partition.topic for partition in (*plan.to_fetch, *plan.resets)})
            if plan.resets:
                self._catch_up()
            more = self._poll()
        except _TRANSIENT as error:
            self._warn(error)
            return False, self._settings.retry_backoff_max_ms / 1000
        progressed = self._resolve_resets(plan) if plan.resets else False
        progressed |= self._fetch(plan)
        if progressed:
            self._on_records()
        pause_ms = POLL_INTERVAL_MS
        if self._held:
            left = self._held_since + self._settings.fetch_max_wait_ms - now_ms()
            pause_ms = max(0, min(pause_ms, left))
        return progressed or more, pause_ms / 1000

    def _open(self, topics: Collection[str]) -> None:
        """Add these topics to those that are read."""
        if not self._names.issuperset(topics):
            self._names |= frozenset(topics)
            self._logs = TableTopics(self._root, self._names, whole_rows=self._whole_rows)
            self._polled_at = -POLL_INTERVAL_MS

    def _poll(self) -> bool:
        """Poll for new rows if the interval is over; return whether there may be more."""
        if now_ms() - self._polled_at < POLL_INTERVAL_MS:
            return False
        if self._logs.poll():
            return True
        self._polled_at = now_ms()
        return False

    def _catch_up(self) -> None:
        """Index all rows that the topics have now."""
        while self._logs.poll() and not self._stopping:
            pass

    def _resolve_resets(self, plan: _FetchPlan) -> bool:
        """Look up the offsets for position resets; return whether any was found."""
        results: LookupResults = {}
        for partition, reset in plan.resets.items():
            try:
                bounds = log_bounds(self._logs, partition)
            except UnknownTopicOrPartition:
                # The member's catalogue is newer than this thread's.
                continue
            except Failure as error:
                results[partition] = reset, error
                continue
            results[partition] = reset, bounds[0 if reset is AutoOffsetReset.EARLIEST else 1]
        with self._changed:
            self._buffer.complete_lookups(plan.epoch, results)
        return bool(results)

    def _fetch(self, plan: _FetchPlan) -> bool:
        """Read the planned partitions, up to fetch.max.bytes; return whether the buffer got any."""
        settings = self._settings
        held, self._held = self._held, {}
        ends: dict[TopicPartition, int] = {}
        done: list[CompletedFetch[Record]] = []
        size = 0
        for partition, offset in plan.to_fetch.items():
            if self._stopping or (done and size >= settings.fetch_max_bytes):
                break
            fetch = self._read(plan, partition, offset, held, ends)
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
            for partition, end in ends.items():
                self._buffer.update_log_end(partition, end)
            for fetch in done if deliver else ():
                self._buffer.add(fetch)
        return deliver

    def _read(
        self,
        plan: _FetchPlan,
        partition: TopicPartition,
        offset: int,
        held: Mapping[TopicPartition, CompletedFetch[Record]],
        ends: dict[TopicPartition, int],
    ) -> CompletedFetch[Record] | None:
        """Fetch a partition from `offset`; None if there is neither a record nor an error.

        A fetch in `held` is returned again if the partition has not grown since.
        """
        topic, number = partition
        records: list[Record] = []
        error: Exception | None = None
        try:
            ends[partition] = end = self._logs.log_end(topic, number)
            before = held.get(partition)
            if before is not None and before.offset == offset and before.next_offset == end:
                return before
            records = self._logs.read(
                topic, number, offset, self._settings.max_partition_fetch_bytes, _MAX_RECORDS
            )
            if not records:
                error = self._end_of_topic(plan, topic)
        except UnknownTopicOrPartition:
            # A topic without records, or the member's catalogue is newer than this thread's.
            return None
        except OffsetOutOfRange as out:
            log.warning("%s: auto.offset.reset is %s", out, self._settings.auto_offset_reset.value)
            error = OffsetOutOfRangeError(f"{out}, and auto.offset.reset is 'none'")
        except Failure as failure:
            error = failure
        except _TRANSIENT as failure:
            self._warn(failure)
            return None
        if not records and error is None:
            return None
        size = sum(len(record.key or b"") + len(record.value or b"") for record in records)
        return CompletedFetch(partition, offset, records, size, error)

    def _end_of_topic(self, plan: _FetchPlan, topic: str) -> CannotFollow | None:
        """Return the error that ends a topic, but only after all its records were returned."""
        problem = self._logs.problems().get(topic)
        if not isinstance(problem, CannotFollow):
            return None
        if any(
            position < self._logs.log_end(topic, partition.partition)
            for partition, position in plan.positions.items()
            if partition.topic == topic
        ):
            return None
        return type(problem)(f"topic {topic!r}: {problem}")

    def _warn(self, error: Exception) -> None:
        """Log a transient error, unless it repeats the last one."""
        if str(error) != self._last_warning:
            log.warning("the topics of %s cannot be read: %s", self._root, error)
        self._last_warning = str(error)
