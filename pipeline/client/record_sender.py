"""Sender of one topic: its thread writes one commit at a time, with retries.

A commit has all records that were ready. A topic has at most one commit in flight, because commits
to a Delta table are serial. So a partition's records keep their order.

An idempotent producer assigns one range of sequences to a partition's records in a commit. If the
commit's outcome is unknown, the sender retries it with the same ranges, and the topic's log rejects
duplicates. After it gave up records, the sender uses a new producer id, because their commit may
have succeeded.

Source: Kafka's Sender, LogValidator (validation) and KIP-98 (sequences).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from group_coordinator.coordinator.consumer.backoff import ExponentialBackoff
from group_coordinator.coordinator.consumer.consumer_errors import (
    ConsumerError,
    UnknownTopicOrPartitionError,
)
from group_coordinator.coordinator.producer.record_accumulator import (
    BufferPool,
    RecordBatch,
    TopicQueue,
)
from group_coordinator.coordinator.producer.record_producer_settings import (
    RecordProducerSettings,
)
from group_coordinator.pipeline import background
from group_coordinator.pipeline.client.record_columns import record_sizes
from group_coordinator.pipeline.client.record_topics import RecordTopics, unknown_partition_error
from group_coordinator.pipeline.client.request_producer import (
    DeliveryFailed,
    DeliveryTimeout,
    ProducerClosed,
)
from group_coordinator.pipeline.client.sent_records import (
    BatchOutcome,
    NotProducible,
    RecordRefused,
    RecordTooLarge,
    complete_batch,
)
from group_coordinator.pipeline.clock import clock_ms, monotonic_ms
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.topics import (
    Appended,
    AppendStateUnknown,
    BatchRefused,
    NewBatch,
    Outcome,
    TopicConfig,
    TopicWriter,
    UnknownTopicOrPartition,
    check_size,
    check_times,
    join_batches,
)
from group_coordinator.schemas.errors import ErrorCode

_MAX_SEQUENCE = 2**31 - 1


class PartitionAppend(Struct):
    """Batches of one partition in one commit.

    `new_batch` has the valid records of all batches. `refused` has, for each batch, the errors of
    its invalid records by index.
    """

    batches: list[RecordBatch]
    refused: list[dict[int, Failure]]
    new_batch: NewBatch


class Sequences:
    """A producer id for one topic, and the next sequence of each partition.

    Without `new_producer_id`, the producer is not idempotent, and its records have no sequences.
    """

    def __init__(self, new_producer_id: Callable[[], int] | None) -> None:
        self._new_producer_id = new_producer_id
        self.reset()

    def reset(self) -> None:
        """Use a new producer id from now on, because the log's state of the old one is unknown."""
        self._producer_id: int | None = None
        self._next: dict[int, int] = {}

    def assign(self, new_batch: NewBatch) -> None:
        """Set the producer id, epoch and sequences of `new_batch`, if the producer is idempotent.

        Raises the errors of `new_producer_id`.
        """
        if self._new_producer_id is None:
            return
        if self._producer_id is None:
            self._producer_id = self._new_producer_id()
        new_batch.producer_id, new_batch.producer_epoch = self._producer_id, 0
        new_batch.first_sequence = self._next.get(new_batch.partition, 0)

    def advance(self, new_batch: NewBatch) -> None:
        """Advance the partition's next sequence, because `new_batch` is in the log."""
        if self._producer_id is not None:
            self._next[new_batch.partition] = (new_batch.last_sequence + 1) & _MAX_SEQUENCE


def partition_append(
    batches: list[RecordBatch], config: TopicConfig, now_ms: int
) -> PartitionAppend:
    """Join the valid records of one partition's batches, to be appended together.

    The topic's max.message.bytes limits each record, not the batch. `now_ms` is the wall clock
    time, ms.
    """
    refused = [_find_invalid(batch, config, now_ms) for batch in batches]
    valid = [_valid_records(batch, errors) for batch, errors in zip(batches, refused, strict=True)]
    return PartitionAppend(batches, refused, join_batches(valid))


def _find_invalid(batch: RecordBatch, config: TopicConfig, now_ms: int) -> dict[int, Failure]:
    """Return the errors of a batch's invalid records, by index."""
    refused: dict[int, Failure] = {}
    if batch.largest > config.max_message_bytes:
        for index, size in enumerate(record_sizes(batch.keys, batch.values, batch.headers)):
            try:
                check_size(size, config)
            except BatchRefused as error:
                refused[index] = RecordTooLarge(str(error))
    times = batch.timestamps
    if isinstance(times, list):
        times = pa.array(times, pa.int64())
    span = pc.min_max(times).as_py()
    try:
        check_times(span["min"], span["max"], config, now_ms)
    except BatchRefused:
        for index, at in enumerate(times.to_pylist()):
            try:
                check_times(at, at, config, now_ms)
            except BatchRefused as error:
                refused.setdefault(index, RecordRefused(str(error)))
    return refused


def _valid_records(batch: RecordBatch, refused: dict[int, Failure]) -> NewBatch:
    columns = (batch.keys, batch.values, batch.timestamps, batch.headers)
    if refused:
        indexes = [index for index in range(len(batch)) if index not in refused]
        columns = tuple(_take_rows(column, indexes) for column in columns)
    return NewBatch(batch.partition, *columns)


def _take_rows(column: Any, indexes: list[int]) -> Any:
    if column is None:
        return None
    if isinstance(column, list):
        return [column[index] for index in indexes]
    return column.take(pa.array(indexes, pa.int64()))


log = logging.getLogger(__name__)

# The approximate maximum size of one commit, bytes.
COMMIT_BYTES = 32 << 20
# Errors of the topic or of authorization, which a retry does not change.
_FINAL = (ConsumerError, NotProducible, UnknownTopicOrPartition)


class SharedState(Struct):
    """State shared by the senders of one producer. `lock` guards `memory` and each queue."""

    settings: RecordProducerSettings
    topics: RecordTopics
    memory: BufferPool
    lock: threading.Lock
    memory_freed: threading.Condition
    delivered: threading.Condition
    abandoned: threading.Event
    new_producer_id: Callable[[], int]
    is_closed: bool = False
    flushing: int = 0


class TopicSender:
    """The sender of one topic, with a thread that writes the batches of its queue."""

    def __init__(self, topic: str, queue: TopicQueue, shared: SharedState) -> None:
        self.topic = topic
        self.queue = queue
        self.wake = threading.Condition(shared.lock)
        # The batches without an outcome yet.
        self.open: set[RecordBatch] = set()
        self._shared = shared
        self._backoff = ExponentialBackoff(shared.settings, random.random)
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
            # Any failure must fail these batches, and must not stop the sender.
            except Exception as error:
                log.exception("records of topic %s failed with an unexpected error", self.topic)
                self._fail(batches, error)
            for batch in batches:
                batch.clear()
            with self._shared.lock:
                self._shared.memory.deallocate(sum(batch.size for batch in batches))
                self._shared.memory_freed.notify_all()
                self.open.difference_update(batches)
                self._shared.delivered.notify_all()

    def _next(self) -> list[RecordBatch]:
        """Wait for due batches and return them.

        The list is empty if the producer is closed and has no batch left.
        """
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
        settings = self._shared.settings
        pending = list(batches)
        appends: list[PartitionAppend] | None = None
        last_error: Exception | None = None
        for attempt in range(settings.retries + 1):
            if self._shared.abandoned.is_set():
                return self._fail(
                    pending, ProducerClosed(self._describe_failure(attempt, last_error))
                )
            pending = self._expire(pending, attempt, last_error)
            if not pending:
                return self._sequences.reset()
            until = min(batch.created for batch in pending) + settings.delivery_timeout_ms
            try:
                topic = self._shared.topics.find(self.topic)
                with self._shared.lock:
                    self.queue.count = topic.partitions
                if self._writer is None or self._writer.topic != topic.table:
                    self._writer, appends = TopicWriter(topic.table), None
                    self._sequences.reset()
                if appends is None:
                    appends = list(self._partition_appends(pending, topic.partitions, self._writer))
                new_batches = [
                    append.new_batch for append in appends if len(append.new_batch.values)
                ]
                outcomes = self._writer.append(new_batches, until / 1000) if new_batches else []
            except _FINAL as error:
                return self._fail(pending, error)
            except STORE_FAILS as error:
                last_error = error
            else:
                failed = next((o for o in outcomes if isinstance(o, AppendStateUnknown)), None)
                if failed is None:
                    return self._complete(appends, outcomes)
                last_error = failed
            left = max(0.0, until - monotonic_ms())
            self._shared.abandoned.wait(min(left, self._backoff(attempt)) / 1000)
        return self._fail(
            pending, DeliveryFailed(self._describe_failure(settings.retries + 1, last_error))
        )

    def _partition_appends(
        self, batches: list[RecordBatch], partitions: int, writer: TopicWriter
    ) -> Iterator[PartitionAppend]:
        """Yield the append of each partition, with its sequences.

        Batches of a partition that does not exist fail at once.
        """
        by_partition: dict[int, list[RecordBatch]] = {}
        for batch in batches:
            by_partition.setdefault(batch.partition, []).append(batch)
        for number, partition_batches in by_partition.items():
            if number >= partitions:
                self._complete_all(
                    partition_batches, unknown_partition_error(self.topic, number, partitions)
                )
                continue
            append = partition_append(partition_batches, writer.config, clock_ms())
            self._sequences.assign(append.new_batch)
            yield append

    def _complete(self, appends: list[PartitionAppend], outcomes: list[Outcome]) -> None:
        """Complete each batch with its offsets, or with the error of its partition."""
        remaining = iter(outcomes)
        failed = False
        for append in appends:
            count = len(append.new_batch.values)
            outcome = next(remaining) if count else Appended(-1, -1)
            if isinstance(outcome, Appended):
                if count:
                    self._sequences.advance(append.new_batch)
                base = outcome.base_offset
                for batch, refused in zip(append.batches, append.refused, strict=True):
                    complete_batch(
                        batch, BatchOutcome(self.topic, base, outcome.append_time, refused)
                    )
                    base += len(batch) - len(refused)
            else:
                failed = True
                self._complete_all(append.batches, self._to_error(outcome))
        if failed:
            self._sequences.reset()

    def _expire(
        self, batches: list[RecordBatch], attempts: int, last_error: Exception | None
    ) -> list[RecordBatch]:
        """Fail the batches that have reached delivery.timeout.ms; return the others.

        If they were tried before, retries still include them, so they may still be written.
        """
        timeout_ms = self._shared.settings.delivery_timeout_ms
        before = monotonic_ms() - timeout_ms
        late = [batch for batch in batches if batch.created <= before]
        if not late:
            return batches
        error = DeliveryTimeout(
            f"delivery.timeout.ms ({timeout_ms} ms) is over: "
            f"{self._describe_failure(attempts, last_error)}"
        )
        self._complete_all(late, error)
        return [batch for batch in batches if batch.created > before]

    def _fail(self, batches: Sequence[RecordBatch], error: Exception) -> None:
        self._complete_all(batches, error)
        self._sequences.reset()

    def _complete_all(self, batches: Sequence[RecordBatch], error: Exception) -> None:
        for batch in batches:
            complete_batch(batch, error)

    def _to_error(self, outcome: Failure) -> Exception:
        if isinstance(outcome, UnknownTopicOrPartition):
            return UnknownTopicOrPartitionError(str(outcome), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return DeliveryFailed(f"topic {self.topic!r}: {outcome}")

    def _describe_failure(self, attempts: int, error: Exception | None) -> str:
        cause = "" if error is None else f": {first_line(error)}"
        tries = f"{attempts} attempt{'' if attempts == 1 else 's'}"
        return f"records could not be written to topic {self.topic!r} in {tries}{cause}"
