"""Senders of one producer: one thread per topic, and the buffer memory that they share."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

from group_coordinator.coordinator.consumer.backoff import Backoff
from group_coordinator.coordinator.producer.partitioners import Chooser, new_partitioner
from group_coordinator.coordinator.producer.record_accumulator import Memory, TopicQueue
from group_coordinator.pipeline.client.producer import (
    BufferExhausted,
    DeliveryFailed,
    ProducerClosed,
)
from group_coordinator.pipeline.client.record_sender import Shared, TopicSender
from group_coordinator.pipeline.client.record_topics import OwnTopic, RecordTopics
from group_coordinator.pipeline.client.sent_records import BatchDelivery, NotProducible
from group_coordinator.pipeline.clock import monotonic, monotonic_ms, sleep
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.topics import ProducerIds

if TYPE_CHECKING:
    from group_coordinator.coordinator.producer.record_producer_settings import (
        RecordProducerSettings,
    )


class RecordSenders:
    """The senders of the topics that were written to; thread-safe."""

    def __init__(
        self, root: str, settings: RecordProducerSettings, partitioner: str | Chooser
    ) -> None:
        """Raise ConfigError if the partitioner is unknown."""
        new_partitioner(partitioner, "", _choose)
        self._root = root
        self._settings = settings
        self._partitioner = partitioner
        self._topics = RecordTopics(root, settings)
        self._ids: ProducerIds | None = None
        self._giving = threading.Lock()
        self._opening = threading.Lock()
        self.lock = threading.Lock()
        self.memory = Memory(settings.buffer_memory)
        self.shared = Shared(
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
        """Return the sender of a topic, creating it if missing. Raises as `find` does."""
        found = self.find(topic)
        with self._opening:
            if topic not in self.by_topic:
                settings = self._settings
                queue = TopicQueue(
                    settings.batch_size,
                    settings.linger_ms,
                    new_partitioner(self._partitioner, topic, _choose),
                    found.partitions,
                    BatchDelivery,
                )
                sender = TopicSender(topic, queue, self.shared)
                with self.lock:
                    self.by_topic[topic] = sender
            return self.by_topic[topic]

    def find(self, topic: str) -> OwnTopic:
        """Return a topic as it is now; retry for `max.block.ms` if it cannot be read.

        Raises ProducerClosed, NotProducible, and DeliveryFailed after `max.block.ms`. Raises
        UnknownTopicOrPartitionError and TopicAuthorizationError.
        """
        until = monotonic_ms() + self._settings.max_block_ms
        backoff = Backoff(self._settings, random.random)
        attempt = 0
        while True:
            if self.shared.is_closed:
                raise self._closed()
            try:
                return self._topics.find(topic, most_age_s=0)
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

    def wait_for_room(self, size: int) -> None:
        """Wait until `size` bytes fit; the longest waiting thread goes first.

        The caller holds the lock. Raises BufferExhausted and ProducerClosed.
        """
        shared, memory = self.shared, self.memory
        ticket = object()
        memory.blocked.append(ticket)
        # Lingering batches are written at once, to free their memory.
        self._wake_all()
        try:
            if not shared.room.wait_for(
                lambda: shared.is_closed or memory.fits(size, ticket),
                self._settings.max_block_ms / 1000,
            ):
                raise BufferExhausted(
                    f"buffer.memory ({memory.most} bytes) was full for max.block.ms "
                    f"({self._settings.max_block_ms} ms): is {self._root} writable?"
                )
            if shared.is_closed:
                raise self._closed()
        finally:
            memory.blocked.remove(ticket)
            shared.room.notify_all()

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write all records sent so far, as `Producer.flush` does."""
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
        with self.lock:
            self.shared.is_closed = True
            self._wake_all()
            self.shared.room.notify_all()
            senders = list(self.by_topic.values())
        limit = None if timeout_s is None else monotonic() + timeout_s
        for sender in senders:
            sender.thread.join(None if limit is None else max(0.0, limit - monotonic()))
        self.shared.given_up.set()
        for sender in senders:
            sender.thread.join()

    def _wake_all(self) -> None:
        for sender in self.by_topic.values():
            sender.wake.notify()

    def _new_producer_id(self) -> int:
        """Return an id that no other producer has. Raises OSError, DeltaError and Failure."""
        with self._giving:
            if self._ids is None:
                self._ids = ProducerIds(self._root)
            return self._ids.take()

    def _closed(self) -> ProducerClosed:
        return ProducerClosed(f"the producer of {self._root} is closed")


def _choose(count: int) -> int:
    return random.randrange(count)
