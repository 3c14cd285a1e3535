"""A producer of records, for programs: Kafka's producer, with Delta tables for its brokers.

    with Producer(root) as producer:
        sent = producer.send("clicks", b"bought", key=b"c7")
        print(sent.result().offset)

`send` gathers records in memory (`coordinator.producer`); one thread for each topic writes them,
one commit at a time (`record_sender`), through the writer that a gateway has, too. The commit is
the acknowledgement.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, starmap
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError

from group_coordinator.coordinator.config import ConfigError, typed
from group_coordinator.coordinator.consumer.backoff import Backoff
from group_coordinator.coordinator.producer.accumulator import (
    Memory,
    TopicQueue,
    record_size,
)
from group_coordinator.coordinator.producer.partitioners import Chooser, new_partitioner
from group_coordinator.coordinator.producer.settings import RecordProducerSettings
from group_coordinator.pipeline.client.producer import (
    BufferExhausted,
    DeliveryFailed,
    ProducerClosed,
)
from group_coordinator.pipeline.client.record_columns import (
    Array,
    by_partition,
    column_sizes,
    partitions_of,
    typed_columns,
)
from group_coordinator.pipeline.client.record_sender import (
    COMMIT_BYTES,
    Shared,
    TopicSender,
    now_ms,
)
from group_coordinator.pipeline.client.record_topics import OwnTopic, RecordTopics, no_partition
from group_coordinator.pipeline.client.sent_records import (
    BatchDelivery,
    NotProducible,
    OnDelivery,
    RecordTooLarge,
    SentRecord,
    SentTable,
)
from group_coordinator.pipeline.clock import clock_ms, monotonic, sleep
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.settings import SettingsError
from group_coordinator.pipeline.topics import ProducerIds

if TYPE_CHECKING:
    from group_coordinator.coordinator.producer.accumulator import RecordBatch

Serializer = Callable[[Any], "bytes | None"]
_MOST_TIME = 2**63 - 1


class Producer:
    """Writes records to topics with tables of their own; for any number of threads.

    Settings are Kafka's producer settings, under their own names in `settings` or as keywords with
    `_` for `.` (`coordinator.producer.settings`). `partitioner`: "default" is Kafka's (a key by
    murmur2, none: sticky for a batch), "round_robin", or a function of topic, key, value and number
    of partitions. Serializers make bytes of keys and values; without one these are bytes.

    A producer that is still open is closed when the interpreter exits. Raises SettingsError.
    """

    def __init__(
        self,
        root: str,
        settings: Mapping[str, Any] | None = None,
        *,
        partitioner: str | Chooser = "default",
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        **kafka_settings: Any,
    ) -> None:
        named = {key.replace("_", "."): value for key, value in kafka_settings.items()}
        try:
            self.settings = typed(RecordProducerSettings, {**(settings or {}), **named})
            new_partitioner(partitioner, "", _choose)
        except ConfigError as error:
            raise SettingsError(f"the producer: {error}") from error
        self._root = root
        self._partitioner = partitioner
        self._key_serializer, self._value_serializer = key_serializer, value_serializer
        self._topics = RecordTopics(root, self.settings)
        self._ids: ProducerIds | None = None
        self._giving = threading.Lock()
        self._opening = threading.Lock()
        self._lock = threading.Lock()
        self._memory = Memory(self.settings.buffer_memory)
        self._shared = Shared(
            self.settings,
            self._topics,
            self._memory,
            self._lock,
            threading.Condition(self._lock),
            threading.Condition(self._lock),
            threading.Event(),
            self._new_producer_id,
        )
        self._senders: dict[str, TopicSender] = {}

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def partitions_for(self, topic: str) -> int:
        """Return a topic's number of partitions. Raises what `send` raises of the topic."""
        return self._find(topic).partitions

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
        """Take a record; it is written soon, and what is returned tells where it is then.

        `timestamp_ms` None: now. `on_delivery` is called once, in the topic's thread, with where
        the record is and None, or with None and why it is not written; it must be short.

        Blocks while `buffer.memory` is full, and raises BufferExhausted after `max.block.ms`.
        Raises RecordTooLarge, UnknownTopicOrPartitionError, TopicAuthorizationError, NotProducible,
        DeliveryFailed if the topic cannot be read for `max.block.ms`, and ProducerClosed.
        """
        sender = self._senders.get(topic) or self._open(topic)
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        if not (value is None or type(value) is bytes) or not (key is None or type(key) is bytes):
            raise TypeError(
                f"a key of {type(key).__name__} and a value of {type(value).__name__}: "
                "they are bytes, or a serializer makes them bytes"
            )
        if headers:
            _check_headers(headers)
        size = record_size(key, value, headers)
        if timestamp_ms is None:
            timestamp_ms = clock_ms()
        elif not -_MOST_TIME <= index(timestamp_ms) <= _MOST_TIME:
            raise ValueError(f"there is no time {timestamp_ms}")
        if size > self.settings.max_request_size or size > self._memory.most:
            raise self._too_large(size)
        queue = sender.queue
        with self._lock:
            if self._shared.is_closed or not self._memory.fits(size):
                self._wait_for_room(size)
            if partition is None:
                partition = queue.choose(key, value, size)
            elif not 0 <= index(partition) < queue.count:
                raise no_partition(topic, partition, queue.count)
            self._memory.take(size)
            batch = queue.append(partition, key, value, timestamp_ms, headers, size, now_ms())
            place = len(batch) - 1
            if place == 0:
                sender.open.add(batch)
                sender.wake.notify()
            elif queue.is_full(batch):
                sender.wake.notify()
            if on_delivery is not None:
                batch.callbacks.append((place, on_delivery))
        return SentRecord(batch, place)

    def send_table(self, topic: str, table: pa.Table) -> SentTable:
        """Take the rows of an Arrow table as records; they are written soon.

        Columns: `value`, and `key` (binary or text), `partition`, `timestamp` (ms, or a timestamp)
        and `headers` (as Spark's Kafka source has them), which may be left out. Rows without a
        partition go where `send` sends them; those without a key go to one partition together.
        Blocks and raises as `send`, RecordTooLarge before any row is taken, and InvalidColumns.
        """
        sender = self._senders.get(topic) or self._open(topic)
        rows = typed_columns(table, clock_ms())
        sizes = column_sizes(*(rows.column(name) for name in ("key", "value", "headers")))
        most = min(self._memory.most, COMMIT_BYTES)
        if rows.num_rows and (largest := int(sizes.max())) > min(
            self.settings.max_request_size, most
        ):
            raise self._too_large(largest)
        batches: list[RecordBatch] = []
        for part in _pieces(sizes, most):
            batches += self._send_rows(topic, sender, rows[part], sizes[part])
        return SentTable(tuple(batches))

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write what was sent so far without lingering, and wait until it is written or given up.

        Returns False if `timeout_s` ran out.
        """
        with self._lock:
            waiting = {sender: set(sender.open) for sender in self._senders.values()}
            self._shared.flushing += 1
            self._wake_all()
            try:
                return self._shared.delivered.wait_for(
                    lambda: not any(sent & sender.open for sender, sent in waiting.items()),
                    timeout_s,
                )
            finally:
                self._shared.flushing -= 1

    def close(self, timeout_s: float | None = None) -> None:
        """Take no more records, write those that wait, and stop.

        Records that are not written after `timeout_s` (None: after `delivery.timeout.ms`) fail with
        ProducerClosed; a commit in flight is awaited. A second call does nothing.
        """
        with self._lock:
            self._shared.is_closed = True
            self._wake_all()
            self._shared.room.notify_all()
            senders = list(self._senders.values())
        limit = None if timeout_s is None else monotonic() + timeout_s
        for sender in senders:
            sender.thread.join(None if limit is None else max(0.0, limit - monotonic()))
        self._shared.given_up.set()
        for sender in senders:
            sender.thread.join()

    def _open(self, topic: str) -> TopicSender:
        """Begin to write to a topic, once it is known that this may be."""
        found = self._find(topic)
        with self._opening:
            if topic not in self._senders:
                settings = self.settings
                queue = TopicQueue(
                    settings.batch_size,
                    settings.linger_ms,
                    new_partitioner(self._partitioner, topic, _choose),
                    found.partitions,
                    BatchDelivery,
                )
                sender = TopicSender(topic, queue, self._shared)
                with self._lock:
                    self._senders[topic] = sender
            return self._senders[topic]

    def _find(self, topic: str) -> OwnTopic:
        """A topic as it is now, tried again for `max.block.ms` where it cannot be read."""
        until = now_ms() + self.settings.max_block_ms
        backoff = Backoff(self.settings, random.random)
        attempt = 0
        while True:
            if self._shared.is_closed:
                raise self._closed()
            try:
                return self._topics.find(topic, most_age_s=0)
            except NotProducible:
                raise
            except (OSError, DeltaError, Failure) as error:
                left = until - now_ms()
                if left <= 0:
                    raise DeliveryFailed(
                        f"topic {topic!r} could not be read for max.block.ms "
                        f"({self.settings.max_block_ms} ms): {first_line(error)}"
                    ) from error
                sleep(min(left, backoff(attempt)) / 1000)
                attempt += 1

    def _send_rows(
        self, topic: str, sender: TopicSender, rows: pa.Table, sizes: Array
    ) -> list[RecordBatch]:
        """Take rows that fit into one commit; returns a batch for each partition."""
        queue = sender.queue
        with self._lock:
            partitions = partitions_of(rows, queue, hashes=self._partitioner == "default")
            for number in (int(partitions.min()), int(partitions.max())):
                if not 0 <= number < queue.count:
                    raise no_partition(topic, number, queue.count)
        parts = list(by_partition(rows, partitions, sizes))
        with self._lock:
            self._wait_for_room(int(sizes.sum()))
            now = now_ms()
            batches = []
            for number, columns, found in parts:
                size, largest = int(found.sum()), int(found.max())
                self._memory.take(size)
                batches.append(queue.append_columns(number, columns, size, largest, now))
            sender.open.update(batches)
            sender.wake.notify()
        return batches

    def _wait_for_room(self, size: int) -> None:
        """Return when so many bytes fit; the thread that waits longest goes first."""
        shared, memory = self._shared, self._memory
        ticket = object()
        memory.blocked.append(ticket)
        # Batches that linger are written at once, to free their memory.
        self._wake_all()
        try:
            if not shared.room.wait_for(
                lambda: shared.is_closed or memory.fits(size, ticket),
                self.settings.max_block_ms / 1000,
            ):
                raise BufferExhausted(
                    f"buffer.memory ({memory.most} bytes) was full for max.block.ms "
                    f"({self.settings.max_block_ms} ms): is {self._root} writable?"
                )
            if shared.is_closed:
                raise self._closed()
        finally:
            memory.blocked.remove(ticket)
            shared.room.notify_all()

    def _wake_all(self) -> None:
        for sender in self._senders.values():
            sender.wake.notify()

    def _new_producer_id(self) -> int:
        """Return an id that no other producer has. Raises OSError, DeltaError and Failure."""
        with self._giving:
            if self._ids is None:
                self._ids = ProducerIds(self._root)
            return self._ids.take()

    def _too_large(self, size: int) -> RecordTooLarge:
        return RecordTooLarge(
            f"a record of {size} bytes: max.request.size is {self.settings.max_request_size}, "
            f"buffer.memory {self._memory.most}"
        )

    def _closed(self) -> ProducerClosed:
        return ProducerClosed(f"the producer of {self._root} is closed")


def _check_headers(headers: Sequence[tuple[str, bytes | None]]) -> None:
    for name, content in headers:
        if not isinstance(name, str) or not (content is None or isinstance(content, bytes)):
            raise TypeError(f"a header is a text with bytes or None, and not {name!r}, {content!r}")


def _pieces(sizes: Array, most: int) -> Iterator[slice]:
    """Rows that follow each other and have at most so many bytes together."""
    if not len(sizes):
        return
    if sizes.sum() <= most:
        yield slice(0, len(sizes))
        return
    numbers = (np.cumsum(sizes) - sizes) // max(1, most - int(sizes.max()))
    starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    yield from starmap(slice, pairwise([*starts, len(sizes)]))


def _choose(count: int) -> int:
    return random.randrange(count)
