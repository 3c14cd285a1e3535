"""The thread that writes one topic's records: one commit at a time, each until it is written.

Commits to one Delta table are serial, so a topic has one commit in flight, with whatever waits, and
a partition's records keep their order: what comes later waits until the outcome is known.

An idempotent producer gives a partition's records of a commit one range of sequences. A commit
whose outcome is not known is repeated with the same ranges, which the topic's log knows again. Once
records were given up, the topic is written on under another producer id: that commit may stand.
"""

from __future__ import annotations

import logging
import random
import threading
from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.coordinator.consumer.backoff import Backoff
from group_coordinator.coordinator.consumer.errors import (
    ConsumerError,
    UnknownTopicOrPartitionError,
)
from group_coordinator.pipeline import background
from group_coordinator.pipeline.client.producer import (
    DeliveryFailed,
    DeliveryTimeout,
    ProducerClosed,
)
from group_coordinator.pipeline.client.record_range import Sequences, range_of
from group_coordinator.pipeline.client.record_topics import no_partition
from group_coordinator.pipeline.client.sent_records import BatchOutcome, NotProducible, tell
from group_coordinator.pipeline.clock import clock_ms, monotonic_ms
from group_coordinator.pipeline.delta.failures import STORE_FAILS
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.topics import (
    Appended,
    AppendStateUnknown,
    TopicWriter,
    UnknownTopicOrPartition,
)
from group_coordinator.schemas.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from group_coordinator.coordinator.producer.accumulator import (
        Memory,
        RecordBatch,
        TopicQueue,
    )
    from group_coordinator.coordinator.producer.settings import RecordProducerSettings
    from group_coordinator.pipeline.client.record_range import Range
    from group_coordinator.pipeline.client.record_topics import RecordTopics
    from group_coordinator.pipeline.topics import Outcome

log = logging.getLogger(__name__)

# About what one commit has, bytes.
COMMIT_BYTES = 32 << 20
# What the topic, or who may write it, says for good.
_FINAL = (ConsumerError, NotProducible, UnknownTopicOrPartition)


class Shared(Struct):
    """What the senders of one producer share; `lock` is held for `memory` and each queue."""

    settings: RecordProducerSettings
    topics: RecordTopics
    memory: Memory
    lock: threading.Lock
    room: threading.Condition
    delivered: threading.Condition
    given_up: threading.Event
    new_producer_id: Callable[[], int]
    is_closed: bool = False
    flushing: int = 0


class TopicSender:
    """Writes what waits in one topic's queue, in a thread of its own."""

    def __init__(self, topic: str, queue: TopicQueue, shared: Shared) -> None:
        self.topic = topic
        self.queue = queue
        self.wake = threading.Condition(shared.lock)
        # What was sent, and is not told of yet.
        self.open: set[RecordBatch] = set()
        self._shared = shared
        self._backoff = Backoff(shared.settings, random.random)
        self._writer: TopicWriter | None = None
        idempotent = shared.settings.enable_idempotence
        self._sequences = Sequences(shared.new_producer_id if idempotent else None)
        self.thread = background.start(f"producer-{topic}", self._run, self._stop)

    def _stop(self) -> None:
        with self._shared.lock:
            self._shared.is_closed = True
            self.wake.notify_all()

    def _run(self) -> None:
        while batches := self._next():
            try:
                self._deliver(batches)
            # Any failure must reach the batches, and what comes after them be written.
            except Exception as error:
                log.exception("records of topic %s are given up", self.topic)
                self._give_up(batches, error)
            for batch in batches:
                batch.forget()
            with self._shared.lock:
                self._shared.memory.give_back(sum(batch.size for batch in batches))
                self._shared.room.notify_all()
                self.open.difference_update(batches)
                self._shared.delivered.notify_all()

    def _next(self) -> list[RecordBatch]:
        """Wait for what is due; return it, nothing once the producer is closed and all is done."""
        shared = self._shared
        with shared.lock:
            while True:
                ready_at = self.queue.ready_at()
                now = monotonic_ms()
                if ready_at is None:
                    if shared.is_closed:
                        return []
                    self.wake.wait()
                elif (
                    ready_at <= now or shared.is_closed or shared.flushing or shared.memory.blocked
                ):
                    return self.queue.drain(COMMIT_BYTES)
                else:
                    self.wake.wait((ready_at - now) / 1000)

    # --- one commit -------------------------------------------------------------------------------

    def _deliver(self, batches: list[RecordBatch]) -> None:
        """Write batches, and tell them so or why not."""
        settings = self._shared.settings
        untold = list(batches)
        ranges: list[Range] | None = None
        last: Exception | None = None
        for attempt in range(settings.retries + 1):
            if self._shared.given_up.is_set():
                return self._give_up(untold, ProducerClosed(self._described(attempt, last)))
            untold = self._expire(untold, attempt, last)
            if not untold:
                return self._sequences.begin_anew()
            until = min(batch.created for batch in untold) + settings.delivery_timeout_ms
            try:
                topic = self._shared.topics.find(self.topic)
                with self._shared.lock:
                    self.queue.count = topic.partitions
                if self._writer is None or self._writer.topic != topic.table:
                    self._writer, ranges = TopicWriter(topic.table), None
                    self._sequences.begin_anew()
                if ranges is None:
                    ranges = list(self._ranges(untold, topic.partitions, self._writer))
                appended = [each.appended for each in ranges if len(each.appended.values)]
                outcomes = self._writer.append(appended, until / 1000) if appended else []
            except _FINAL as error:
                return self._give_up(untold, error)
            except STORE_FAILS as error:
                last = error
            else:
                failed = next(
                    (each for each in outcomes if isinstance(each, AppendStateUnknown)), None
                )
                if failed is None:
                    return self._settle(ranges, outcomes)
                last = failed
            left = max(0.0, until - monotonic_ms())
            self._shared.given_up.wait(min(left, self._backoff(attempt)) / 1000)
        return self._give_up(untold, DeliveryFailed(self._described(settings.retries + 1, last)))

    def _ranges(
        self, batches: list[RecordBatch], partitions: int, writer: TopicWriter
    ) -> Iterator[Range]:
        """What of the batches is appended: a range of sequences for each partition.

        What the topic does not take is left out, and is told so with the others.
        """
        by_partition: dict[int, list[RecordBatch]] = {}
        for batch in batches:
            by_partition.setdefault(batch.partition, []).append(batch)
        for number, found in by_partition.items():
            if number >= partitions:
                self._tell_all(found, no_partition(self.topic, number, partitions))
                continue
            taken = range_of(found, writer.config, clock_ms())
            self._sequences.number(taken.appended)
            yield taken

    def _settle(self, ranges: list[Range], outcomes: list[Outcome]) -> None:
        """Tell each batch where it is, or why it is not."""
        found = iter(outcomes)
        failed = False
        for each in ranges:
            count = len(each.appended.values)
            outcome = next(found) if count else Appended(-1, -1)
            if isinstance(outcome, Appended):
                if count:
                    self._sequences.written(each.appended)
                base = outcome.base_offset
                for batch, refused in zip(each.batches, each.refused, strict=True):
                    written = BatchOutcome(self.topic, base, outcome.append_time, refused)
                    tell(batch, written)
                    base += len(batch) - len(refused)
            else:
                failed = True
                self._tell_all(each.batches, self._in_words(outcome))
        if failed:
            self._sequences.begin_anew()

    def _expire(
        self, batches: list[RecordBatch], attempts: int, last: Exception | None
    ) -> list[RecordBatch]:
        """Give up the batches whose time is over; return the others.

        What was tried stays in its range, and may be written nevertheless.
        """
        timeout_ms = self._shared.settings.delivery_timeout_ms
        before = monotonic_ms() - timeout_ms
        late = [batch for batch in batches if batch.created <= before]
        if not late:
            return batches
        error = DeliveryTimeout(
            f"delivery.timeout.ms ({timeout_ms} ms) is over: {self._described(attempts, last)}"
        )
        self._tell_all(late, error)
        return [batch for batch in batches if batch.created > before]

    def _give_up(self, batches: Sequence[RecordBatch], error: Exception) -> None:
        self._tell_all(batches, error)
        self._sequences.begin_anew()

    def _tell_all(self, batches: Sequence[RecordBatch], error: Exception) -> None:
        for batch in batches:
            tell(batch, error)

    def _in_words(self, outcome: Failure) -> Exception:
        if isinstance(outcome, UnknownTopicOrPartition):
            return UnknownTopicOrPartitionError(str(outcome), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return DeliveryFailed(f"topic {self.topic!r}: {outcome}")

    def _described(self, attempts: int, error: Exception | None) -> str:
        why = "" if error is None else f": {first_line(error)}"
        tries = f"{attempts} attempt{'' if attempts == 1 else 's'}"
        return f"records could not be written to topic {self.topic!r} in {tries}{why}"
