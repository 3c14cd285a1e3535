"""A consumer, for programs: Kafka's, over tables.

    with Consumer(root) as consumer:
        consumer.assign(consumer.partitions_for("orders"))
        while True:
            for partition, records in consumer.poll(1_000).items():
                for record in records:
                    process(record.key, record.value)

`poll` returns the records of a topic that is a Delta table (`pipeline.topics`), by partition.
Without a group the program chooses the partitions, and keeps its own positions: no coordinator
needs to run, and no heartbeat is sent. With a group it either does so too (`assign`), and commits
as it likes, or has the group assign partitions (`subscribe`; `pipeline.client.member`).

Like Kafka's consumer, it is for one thread at a time. One thread of the process heartbeats for all
members of groups, so heartbeats continue while the program works. A member loses its membership
only if the interpreter is held for longer than session.timeout.ms, or if the program does not poll
for max.poll.interval.ms; its next `poll` (on_lost) or `commit` (CommitFailedError) reports the
loss.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from group_coordinator.coordinator.consumer.errors import UnknownTopicOrPartitionError
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.subscription import SubscriptionError, SubscriptionType
from group_coordinator.pipeline.client.consumer_offsets import ConsumerOffsets
from group_coordinator.pipeline.client.consumer_record import ConsumerRecord
from group_coordinator.pipeline.client.member_driver import now_ms
from group_coordinator.pipeline.client.open_consumer import CLOSE_TIMEOUT_MS
from group_coordinator.pipeline.errors import Failure

T = TypeVar("T")
Topics = Iterable[str] | Mapping[str, int] | re.Pattern[str]


class NoCatalogue(Failure):
    """Topics whose numbers of partitions are unknown, because the root has no catalogue."""


class Consumer(ConsumerOffsets):
    """One consumer, with a group or without one.

    Without a group its partitions are those of `assign`, `commit` and `committed` raise
    InvalidGroupIdError, and nothing is written. (A table of the user's own whose newest rows nobody
    has read yet gets its offsets by being read.)

    `poll`, `unsubscribe` and `close` call the listeners in the user's thread, and a listener may
    commit: `on_revoked` before partitions are taken away, `on_lost` after they were taken away
    without asking (`on_revoked` if it is None), `on_assigned` after new partitions were assigned.
    An exception of a listener is raised by the method that called it. `assign` calls none.

    A partition without a committed offset begins at its log start (auto.offset.reset "earliest",
    the default), at its log end ("latest"), or raises NoOffsetForPartitionError ("none"). With
    `whole_rows` a record's value is its row as JSON, whatever the topic's value is.

    Settings are Kafka's consumer settings, as keywords with `_` for `.`, or under their own names
    in `settings`. `client` is a RequestClient to use; without it, all consumers of a process on one
    root share one.

    Raises ConfigError, and with a group NoTables if no coordinator has run on the root yet.
    """

    # --- subscribing ----------------------------------------------------------------------------

    def subscribe(self, topics: Topics) -> None:
        """Replace the subscription by these topics; the next `poll` joins the group.

        `topics` are names from the root's catalogue (`group-coordinator topics create`), or a
        pattern that must match a whole name; for a root without a catalogue, a mapping of names to
        numbers of partitions. Where there is a catalogue, its numbers apply, and a number that
        grows rebalances the group.

        Raises NoCatalogue, UnknownTopicOrPartitionError, SubscriptionError beside `assign`, and
        InvalidGroupIdError without a group.
        """
        self._check_open()
        wanted: list[str] | re.Pattern[str]
        if isinstance(topics, re.Pattern):
            wanted = topics
            self._counts = counts = self._catalogue("NAME")
        else:
            wanted = [topics] if isinstance(topics, str) else list(topics)
            otherwise = topics if isinstance(topics, Mapping) else None
            self._counts = counts = self._counts_of(wanted, otherwise)
        with self._driver.step() as consumer:
            consumer.subscribe(wanted)
        self._hub.tell_topics(self._driver, counts)

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions in place of those before, whatever a group does; none: unsubscribe.

        A partition that was assigned before keeps its position. The records that the last `poll`
        returned are done, and with automatic commits committed, before partitions are replaced.
        Raises NoCatalogue, UnknownTopicOrPartitionError, and SubscriptionError beside `subscribe`.
        """
        self._check_open()
        wanted = [TopicPartition(*one) for one in partitions]
        if not wanted:
            self.unsubscribe()
            return
        counts = self._counts_of({one.topic for one in wanted})
        for topic, number in wanted:
            if not 0 <= number < counts[topic]:
                raise UnknownTopicOrPartitionError(
                    f"there is no partition {topic}-{number}: {topic!r} has {counts[topic]}"
                )
        with self._driver.step() as consumer:
            consumer.assign(now_ms(), wanted)
        self._records.keep()

    def partitions_for(self, topic: str) -> tuple[TopicPartition, ...]:
        """Return a topic's partitions. Raises NoCatalogue and UnknownTopicOrPartitionError."""
        self._check_open()
        count = self._counts_of([topic])[topic]
        return tuple(TopicPartition(topic, number) for number in range(count))

    def _counts_of(
        self, topics: Collection[str], otherwise: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Each topic's number of partitions, these topics' at least."""
        counts = self._catalogue(next(iter(topics), "NAME"), otherwise)
        unknown = sorted(set(topics) - set(counts))
        if unknown:
            raise UnknownTopicOrPartitionError(
                f"there is no topic {', '.join(map(repr, unknown))} in the catalogue of "
                f"{self._root} (`group-coordinator topics create` makes one)"
            )
        return counts

    def _catalogue(self, name: str, otherwise: Mapping[str, int] | None = None) -> dict[str, int]:
        """Each topic's number of partitions; without a catalogue `otherwise`."""
        self._hub.refresh_topics()
        counts = self._hub.topics if self._hub.topics is not None else otherwise
        if counts is None:
            raise NoCatalogue(
                f"{self._root} has no catalogue of topics: "
                f"`group-coordinator topics create {name} --partitions N --root {self._root}` "
                "makes one; or subscribe to a mapping, {name: number of partitions}"
            )
        return dict(counts)

    def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group if there is a subscription."""
        self._check_open()
        with self._driver.step() as consumer:
            consumer.unsubscribe(now_ms())
        self._events.handle_until(
            now_ms() + CLOSE_TIMEOUT_MS, lambda: not self._driver.is_subscribed
        )

    # --- polling --------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Take part in the group, and return the next records of each partition that has some.

        With a subscription it joins and calls the listeners. It commits automatically: the records
        that the last `poll` returned are done now. It returns max.poll.records at most, as soon as
        there are any, and after the timeout in any case. Partitions take turns. The next records
        are read meanwhile, max.partition.fetch.bytes of each partition; a record that is larger
        comes alone. Of a partition that is paused or being revoked nothing is returned, and during
        a cooperative rebalance the records of the partitions that the member keeps are returned
        throughout.

        Raises CoordinatorTimeoutError when no coordinator answers for default.api.timeout.ms;
        InvalidSessionTimeoutError, InconsistentGroupProtocolError, FencedInstanceIdError,
        NoOffsetForPartitionError, OffsetOutOfRangeError and the other ConsumerErrors; CannotFollow
        when all records before a change of a topic's table were returned; Failure for a row that
        cannot be read, which `seek` passes over; RuntimeError from a listener; SubscriptionError if
        there are neither a subscription nor assigned partitions.
        """
        self._records.keep()
        return self._poll(timeout_ms, self._records.collect)

    def _poll(
        self, timeout_ms: int, find: Callable[[], dict[TopicPartition, T]]
    ) -> dict[TopicPartition, T]:
        self._check_open()
        with self._driver.step() as consumer:
            if consumer.subscription.mode is SubscriptionType.NONE:
                raise SubscriptionError(
                    "Consumer is not subscribed to any topics or assigned any partitions"
                )
        until = now_ms() + timeout_ms
        while True:
            mark = self._events.handle_all()
            found = find()
            if found:
                return found
            patience_ends = self._driver.patience_ends()
            if now_ms() >= until:
                return found
            self._driver.wait(mark, min(until, patience_ends))
