"""Producer of records with Kafka's API, which writes to Delta tables instead of brokers.

    with Producer(root) as producer:
        sent = producer.send("clicks", b"bought", key=b"c7")
        print(sent.result().offset)

`send` adds records to batches in memory (`coordinator.producer`). One thread per topic writes them,
one commit at a time (`record_sender`), with the writer that gateways use too (`TopicWriter`). The
commit is the acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from group_coordinator.coordinator.config import ConfigError, typed
from group_coordinator.coordinator.producer.partitioners import Chooser
from group_coordinator.coordinator.producer.record_accumulator import record_size
from group_coordinator.coordinator.producer.record_producer_settings import RecordProducerSettings
from group_coordinator.pipeline.client.record_columns import (
    Array,
    by_partition,
    column_sizes,
    partitions_of,
    pieces,
    typed_columns,
)
from group_coordinator.pipeline.client.record_sender import COMMIT_BYTES, TopicSender
from group_coordinator.pipeline.client.record_senders import RecordSenders
from group_coordinator.pipeline.client.record_topics import no_partition
from group_coordinator.pipeline.client.sent_records import (
    OnDelivery,
    RecordTooLarge,
    SentRecord,
    SentTable,
)
from group_coordinator.pipeline.clock import clock_ms, monotonic_ms
from group_coordinator.pipeline.settings import SettingsError

if TYPE_CHECKING:
    from group_coordinator.coordinator.producer.record_accumulator import RecordBatch

Serializer = Callable[[Any], "bytes | None"]
_MOST_TIME = 2**63 - 1


class Producer:
    """A thread-safe producer for topics that have their own tables.

    Settings are those of `RecordProducerSettings`: keywords with `_` for `.`, or Kafka's names in
    `settings`. Serializers convert keys and values to bytes. Without a serializer, keys and values
    must be bytes.

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
        partitioner: str | Chooser = "default",
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        **kafka_settings: Any,
    ) -> None:
        named = {key.replace("_", "."): value for key, value in kafka_settings.items()}
        try:
            self.settings = typed(RecordProducerSettings, {**(settings or {}), **named})
            self._senders = RecordSenders(root, self.settings, partitioner)
        except ConfigError as error:
            raise SettingsError(f"the producer: {error}") from error
        self._hashes = partitioner == "default"
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
        and ProducerClosed. Raises DeliveryFailed if the topic cannot be read for `max.block.ms`.
        Raises TypeError and ValueError for a key, value, header or timestamp that is not valid.
        """
        sender = self._senders.by_topic.get(topic) or self._senders.open(topic)
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
            if self._senders.shared.is_closed or not self._memory.fits(size):
                self._senders.wait_for_room(size)
            if partition is None:
                partition = queue.choose(key, value, size)
            elif not 0 <= index(partition) < queue.count:
                raise no_partition(topic, partition, queue.count)
            self._memory.take(size)
            batch = queue.append(partition, key, value, timestamp_ms, headers, size, monotonic_ms())
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
        """Accept the rows of an Arrow table as records.

        The table must have the column `value`. Optional columns are `key`, `partition`, `timestamp`
        and `headers`. Keys and values are binary or text. Timestamps are ms, or a timestamp type.
        Headers are as in Spark's Kafka source. Without a `partition` column, the partitioner
        chooses. The default partitioner writes the rows without a key to one partition.

        Blocks and raises as `send` does. Raises RecordTooLarge before any row is accepted, and
        InvalidColumns.
        """
        sender = self._senders.by_topic.get(topic) or self._senders.open(topic)
        rows = typed_columns(table, clock_ms())
        sizes = column_sizes(*(rows.column(name) for name in ("key", "value", "headers")))
        most = min(self._memory.most, COMMIT_BYTES)
        if rows.num_rows and (largest := int(sizes.max())) > min(
            self.settings.max_request_size, most
        ):
            raise self._too_large(largest)
        batches: list[RecordBatch] = []
        for part in pieces(sizes, most):
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
        the commit in flight. None waits for all records; `delivery.timeout.ms` bounds the wait. A
        second call does nothing.
        """
        self._senders.close(timeout_s)

    def _send_rows(
        self, topic: str, sender: TopicSender, rows: pa.Table, sizes: Array
    ) -> list[RecordBatch]:
        """Accept rows that fit into one commit; return one batch per partition."""
        queue = sender.queue
        with self._lock:
            partitions = partitions_of(rows, queue, hashes=self._hashes)
            for number in (int(partitions.min()), int(partitions.max())):
                if not 0 <= number < queue.count:
                    raise no_partition(topic, number, queue.count)
        parts = list(by_partition(rows, partitions, sizes))
        with self._lock:
            self._senders.wait_for_room(int(sizes.sum()))
            now = monotonic_ms()
            batches = []
            for number, columns, found in parts:
                size, largest = int(found.sum()), int(found.max())
                self._memory.take(size)
                batches.append(queue.append_columns(number, columns, size, largest, now))
            sender.open.update(batches)
            sender.wake.notify()
        return batches

    def _too_large(self, size: int) -> RecordTooLarge:
        return RecordTooLarge(
            f"a record of {size} bytes: max.request.size is {self.settings.max_request_size}, "
            f"buffer.memory {self._memory.most}"
        )


def _check_headers(headers: Sequence[tuple[str, bytes | None]]) -> None:
    for name, content in headers:
        if not isinstance(name, str) or not (content is None or isinstance(content, bytes)):
            raise TypeError(f"a header is a text with bytes or None, and not {name!r}, {content!r}")
