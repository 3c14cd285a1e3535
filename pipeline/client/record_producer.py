"""Producer of records with Kafka's API, which writes to Delta tables instead of brokers.

    with Producer(root) as producer:
        sent = producer.send("clicks", b"bought", key=b"c7")
        print(sent.result().offset)

`send` adds records to batches in memory (`coordinator.producer`). One thread per topic writes them,
one commit at a time (`record_sender`), with the `TopicWriter` of gateways. The commit is the
acknowledgement.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any

import pyarrow as pa

from group_coordinator.coordinator.config import ConfigError, typed
from group_coordinator.coordinator.consumer.backoff import ExponentialBackoff
from group_coordinator.coordinator.producer.partitioners import PartitionFunction, new_partitioner
from group_coordinator.coordinator.producer.record_accumulator import (
    BufferPool,
    RecordBatch,
    TopicQueue,
    record_size,
)
from group_coordinator.coordinator.producer.record_producer_settings import (
    RecordProducerSettings,
)
from group_coordinator.pipeline import background
from group_coordinator.pipeline.client.record_columns import (
    Array,
    by_partition,
    cast_columns,
    column_sizes,
    partitions_of,
    split_by_size,
)
from group_coordinator.pipeline.client.record_sender import COMMIT_BYTES, SharedState, TopicSender
from group_coordinator.pipeline.client.record_topics import (
    ProducibleTopic,
    RecordTopics,
    unknown_partition_error,
)
from group_coordinator.pipeline.client.request_producer import (
    DeliveryFailed,
    ProducerClosed,
    wait_for_memory,
)
from group_coordinator.pipeline.client.sent_records import (
    BatchDelivery,
    NotProducible,
    OnDelivery,
    RecordTooLarge,
    SentRecord,
    SentTable,
)
from group_coordinator.pipeline.clock import clock_ms, monotonic, monotonic_ms, sleep
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.settings import SettingsError
from group_coordinator.pipeline.topics import ProducerIdManager


class TopicSenders:
    """The senders of the topics that were written to; thread-safe."""

    def __init__(
        self, root: str, settings: RecordProducerSettings, partitioner: str | PartitionFunction
    ) -> None:
        """Raise ConfigError if the partitioner is unknown."""
        new_partitioner(partitioner, "", _random_index)
        self._root = root
        self._settings = settings
        self._partitioner = partitioner
        self._topics = RecordTopics(root, settings)
        self._ids: ProducerIdManager | None = None
        self._ids_lock = threading.Lock()
        self._open_lock = threading.Lock()
        self.lock = threading.Lock()
        self.memory = BufferPool(settings.buffer_memory)
        self.guard = background.ProcessGuard("Producer")
        self.shared = SharedState(
            settings,
            self._topics,
            self.memory,
            self.lock,
            threading.Condition(self.lock),
            threading.Condition(self.lock),
            threading.Event(),
            self._new_producer_id,
        )
        self.by_topic: dict[str, TopicSender] = {}

    def open(self, topic: str) -> TopicSender:
        """Return the sender of a topic, creating it if missing. Raises the errors of `find`."""
        definition = self.find(topic)
        with self._open_lock:
            if topic not in self.by_topic:
                settings = self._settings
                queue = TopicQueue(
                    settings.batch_size,
                    settings.linger_ms,
                    new_partitioner(self._partitioner, topic, _random_index),
                    definition.partitions,
                    BatchDelivery,
                )
                sender = TopicSender(topic, queue, self.shared)
                with self.lock:
                    self.by_topic[topic] = sender
            return self.by_topic[topic]

    def find(self, topic: str) -> ProducibleTopic:
        """Return a topic as it is now; retry for `max.block.ms` if it cannot be read.

        Raises ProducerClosed, NotProducible, UnknownTopicOrPartitionError and
        TopicAuthorizationError, and DeliveryFailed after `max.block.ms`.
        """
        until = monotonic_ms() + self._settings.max_block_ms
        backoff = ExponentialBackoff(self._settings, random.random)
        attempt = 0
        self.guard.check()
        while True:
            if self.shared.is_closed:
                raise self._closed()
            try:
                return self._topics.find(topic, max_age_s=0)
            except NotProducible:
                raise
            except STORE_FAILS as error:
                left = until - monotonic_ms()
                if left <= 0:
                    raise DeliveryFailed(
                        f"topic {topic!r} could not be read for max.block.ms "
                        f"({self._settings.max_block_ms} ms): {first_line(error)}"
                    ) from error
                sleep(min(left, backoff(attempt)) / 1000)
                attempt += 1

    def wait_for_memory(self, size: int) -> None:
        """Wait until `size` bytes fit; the longest waiting thread goes first.

        The caller holds the lock. Raises BufferExhausted and ProducerClosed.
        """
        # Lingering batches are written at once, to free their memory.
        self._wake_all()
        wait_for_memory(
            self.memory,
            self.shared.memory_freed,
            size,
            self._settings.max_block_ms,
            lambda: self.shared.is_closed,
            self._root,
        )

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write all records sent so far, as `Producer.flush` does."""
        self.guard.check()
        with self.lock:
            waiting = {sender: set(sender.open) for sender in self.by_topic.values()}
            self.shared.flushing += 1
            self._wake_all()
            try:
                return self.shared.delivered.wait_for(
                    lambda: not any(sent & sender.open for sender, sent in waiting.items()),
                    timeout_s,
                )
            finally:
                self.shared.flushing -= 1

    def close(self, timeout_s: float | None = None) -> None:
        """Stop all senders, as `Producer.close` does."""
        self.guard.check()
        with self.lock:
            self.shared.is_closed = True
            self._wake_all()
            self.shared.memory_freed.notify_all()
            senders = list(self.by_topic.values())
        limit = None if timeout_s is None else monotonic() + timeout_s
        for sender in senders:
            sender.thread.join(None if limit is None else max(0.0, limit - monotonic()))
        self.shared.abandoned.set()
        for sender in senders:
            sender.thread.join()

    def _wake_all(self) -> None:
        for sender in self.by_topic.values():
            sender.wake.notify()

    def _new_producer_id(self) -> int:
        with self._ids_lock:
            if self._ids is None:
                self._ids = ProducerIdManager(self._root)
            return self._ids.next_id()

    def _closed(self) -> ProducerClosed:
        return ProducerClosed(f"the producer of {self._root} is closed")


def _random_index(count: int) -> int:
    return random.randrange(count)


Serializer = Callable[[Any], "bytes | None"]
_MOST_TIME = 2**63 - 1


class Producer:
    """A thread-safe producer for topics that have their own tables.

    Settings are the fields of `RecordProducerSettings`: keywords with `_` for `.`, or Kafka's names
    in `settings`. Serializers convert keys and values to bytes; without one they must be bytes.

    `partitioner` is one of:

    * "default", Kafka's: murmur2 of the key; records without a key stay in one partition per batch,
    * "round_robin",
    * a function of topic, key, value and number of partitions.

    A producer that is still open is closed when the interpreter exits. Raises SettingsError.
    """

    def __init__(
        self,
        root: str,
        settings: Mapping[str, Any] | None = None,
        *,
        partitioner: str | PartitionFunction = "default",
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        **kafka_settings: Any,
    ) -> None:
        named = {key.replace("_", "."): value for key, value in kafka_settings.items()}
        try:
            self.settings = typed(RecordProducerSettings, {**(settings or {}), **named})
            self._senders = TopicSenders(root, self.settings, partitioner)
        except ConfigError as error:
            raise SettingsError(f"the producer: {error}") from error
        self._uses_key_hash = partitioner == "default"
        self._key_serializer, self._value_serializer = key_serializer, value_serializer
        self._lock, self._memory = self._senders.lock, self._senders.memory

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def partitions_for(self, topic: str) -> int:
        """Return a topic's number of partitions. Raises the errors of `send` about the topic."""
        return self._senders.find(topic).partitions

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        on_delivery: OnDelivery | None = None,
    ) -> SentRecord:
        """Accept a record; return a handle, which has the offset once the record is written.

        `timestamp_ms` None is the present time. `on_delivery` is called once, in the topic's
        thread: with the record's metadata and None, or with None and the error. It must be short.

        Blocks while `buffer.memory` is full, and raises BufferExhausted after `max.block.ms`.
        Raises RecordTooLarge, UnknownTopicOrPartitionError, TopicAuthorizationError, NotProducible
        and ProducerClosed, and DeliveryFailed if the topic cannot be read for `max.block.ms`.
        Raises TypeError and ValueError for an invalid key, value, header or timestamp.
        """
        sender = self._senders.by_topic.get(topic) or self._senders.open(topic)
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        if not (value is None or type(value) is bytes) or not (key is None or type(key) is bytes):
            raise TypeError(
                f"key is {type(key).__name__} and value is {type(value).__name__}: pass bytes or "
                "None, or give the producer a serializer"
            )
        if headers:
            _check_headers(headers)
        size = record_size(key, value, headers)
        if timestamp_ms is None:
            timestamp_ms = clock_ms()
        elif not -_MOST_TIME <= index(timestamp_ms) <= _MOST_TIME:
            raise ValueError(f"invalid timestamp {timestamp_ms}: it must fit into 64 bits")
        if size > self.settings.max_request_size or size > self._memory.total:
            raise self._too_large(size)
        queue = sender.queue
        self._senders.guard.check()
        with self._lock:
            if self._senders.shared.is_closed or not self._memory.fits(size):
                self._senders.wait_for_memory(size)
            if partition is None:
                partition = queue.choose_partition(key, value, size)
            elif not 0 <= index(partition) < queue.count:
                raise unknown_partition_error(topic, partition, queue.count)
            self._memory.allocate(size)
            batch = queue.append(partition, key, value, timestamp_ms, headers, size, monotonic_ms())
            row = len(batch) - 1
            if row == 0:
                sender.open.add(batch)
                sender.wake.notify()
            elif queue.is_full(batch):
                sender.wake.notify()
            if on_delivery is not None:
                batch.callbacks.append((row, on_delivery))
        return SentRecord(batch, row)

    def send_table(self, topic: str, table: pa.Table) -> SentTable:
        """Accept the rows of an Arrow table as records.

        The table has the column `value`, and optionally `key`, `partition`, `timestamp` and
        `headers` (as in Spark's Kafka source). Keys and values are binary or text, timestamps ms or
        a timestamp type. Without a `partition` column, the partitioner chooses; the default one
        writes all rows without a key to one partition.

        Blocks like `send`, and raises its errors, but raises RecordTooLarge before any row is
        accepted. Raises InvalidColumns.
        """
        sender = self._senders.by_topic.get(topic) or self._senders.open(topic)
        rows = cast_columns(table, clock_ms())
        sizes = column_sizes(*(rows.column(name) for name in ("key", "value", "headers")))
        max_bytes = min(self._memory.total, COMMIT_BYTES)
        if rows.num_rows and (largest := int(sizes.max())) > min(
            self.settings.max_request_size, max_bytes
        ):
            raise self._too_large(largest)
        batches: list[RecordBatch] = []
        for part in split_by_size(sizes, max_bytes):
            batches += self._send_rows(topic, sender, rows[part], sizes[part])
        return SentTable(tuple(batches))

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write all records sent so far without linger; wait until they are written or failed.

        Return False if `timeout_s` ran out first.
        """
        return self._senders.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Accept no more records, write the pending ones, and stop.

        Records that are not written within `timeout_s` fail with ProducerClosed, after the end of
        the commit in flight. None waits for all records, at most `delivery.timeout.ms`. A second
        call does nothing.
        """
        self._senders.close(timeout_s)

    def _send_rows(
        self, topic: str, sender: TopicSender, rows: pa.Table, sizes: Array
    ) -> list[RecordBatch]:
        """Accept rows that fit into one commit; return one batch per partition."""
        queue = sender.queue
        self._senders.guard.check()
        with self._lock:
            partitions = partitions_of(rows, queue, uses_key_hash=self._uses_key_hash)
            for number in (int(partitions.min()), int(partitions.max())):
                if not 0 <= number < queue.count:
                    raise unknown_partition_error(topic, number, queue.count)
        parts = list(by_partition(rows, partitions, sizes))
        with self._lock:
            self._senders.wait_for_memory(int(sizes.sum()))
            now = monotonic_ms()
            batches = []
            for number, columns, record_sizes in parts:
                size, largest = int(record_sizes.sum()), int(record_sizes.max())
                self._memory.allocate(size)
                batches.append(queue.append_columns(number, columns, size, largest, now))
            sender.open.update(batches)
            sender.wake.notify()
        return batches

    def _too_large(self, size: int) -> RecordTooLarge:
        return RecordTooLarge(
            f"a record of {size} bytes: max.request.size is {self.settings.max_request_size}, "
            f"buffer.memory {self._memory.total}"
        )


def _check_headers(headers: Sequence[tuple[str, bytes | None]]) -> None:
    for name, content in headers:
        if not isinstance(name, str) or not (content is None or isinstance(content, bytes)):
            raise TypeError(
                f"invalid header ({name!r}, {content!r}): the name must be str, the value bytes "
                "or None"
            )
