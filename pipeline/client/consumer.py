"""Consumer with Kafka's API, which reads topics that are Delta tables.

    with Consumer(root) as consumer:
        consumer.assign(consumer.partitions_for("orders"))
        for partition, records in consumer.poll(1_000).items():
            ...

Without a group, the program assigns partitions and stores its positions itself. With a group and
`assign`, the group stores committed offsets. With a group and `subscribe`, the group also assigns
the partitions (`pipeline.client.member`).

Like Kafka's consumer, it must be used by one thread at a time. A background thread sends the
heartbeats of all members of the process. A member loses its membership if the interpreter is
blocked for session.timeout.ms, or if the program does not poll for max.poll.interval.ms. The next
`poll` (on_lost) or `commit` (CommitFailedError) reports the loss.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from group_coordinator.coordinator.consumer.consumer_errors import UnknownTopicOrPartitionError
from group_coordinator.coordinator.consumer.consumer_settings import AutoOffsetReset
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.subscription_state import (
    OffsetAndMetadata,
    SubscriptionError,
    SubscriptionType,
)
from group_coordinator.pipeline.client.consumer_base import CLOSE_TIMEOUT_MS, ConsumerBase, OnCommit
from group_coordinator.pipeline.client.consumer_record import ConsumerRecord, OffsetAndTimestamp
from group_coordinator.pipeline.client.member_driver import now_ms
from group_coordinator.pipeline.errors import Failure

T = TypeVar("T")
Topics = Iterable[str] | Mapping[str, int] | re.Pattern[str]


class NoCatalogue(Failure):
    """The root has no catalogue, so the numbers of partitions of its topics are unknown."""


class Consumer(ConsumerBase):
    """A consumer, with a group or without one.

    Without a group, `assign` sets its partitions, and `commit` and `committed` raise
    InvalidGroupIdError. It writes nothing, except the topic index of a user's table with new rows:
    the first reader gives them their offsets.

    `poll`, `unsubscribe` and `close` call the listeners in the user's thread, and raise their
    exceptions:

    * `on_revoked` before partitions are revoked,
    * `on_lost` after partitions were lost without a revocation; `on_revoked` if it is None,
    * `on_assigned` after new partitions were assigned.

    A listener may commit. `assign` calls no listener.

    A partition without a committed offset begins at its log start (auto.offset.reset "earliest",
    the default) or at its log end ("latest"), or raises NoOffsetForPartitionError ("none"). With
    `whole_rows`, a record's value is its whole row as JSON instead of the topic's value.

    Settings are Kafka's consumer settings: keywords with `_` for `.`, or Kafka's names in
    `settings`. Consumers without a `client` share one RequestClient per process and root.

    Raises ConfigError. With a group, raises NoTables if no coordinator has run on the root yet.
    """

    # --- subscribing ----------------------------------------------------------------------------

    def subscribe(self, topics: Topics) -> None:
        """Replace the subscription by these topics; the next `poll` joins the group.

        `topics` are names from the root's catalogue (`group-coordinator topics create`), or a
        pattern that must match a whole name. For a root without a catalogue, `topics` maps names to
        numbers of partitions. When a number in the catalogue grows, the group rebalances.

        Raises NoCatalogue and UnknownTopicOrPartitionError. Raises SubscriptionError if partitions
        were assigned with `assign`, and InvalidGroupIdError without a group.
        """
        self._check_open()
        requested: list[str] | re.Pattern[str]
        if isinstance(topics, re.Pattern):
            requested = topics
            self._counts = counts = self._catalogue("NAME")
        else:
            requested = [topics] if isinstance(topics, str) else list(topics)
            fallback = topics if isinstance(topics, Mapping) else None
            self._counts = counts = self._partition_counts(requested, fallback)
        with self._driver.step() as consumer:
            consumer.subscribe(requested)
        self._hub.update_topics_of(self._driver, counts)

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Assign these partitions in place of the previous ones, without joining a group.

        Without partitions, this is `unsubscribe`. A partition that was assigned before keeps its
        position. The records that the last `poll` returned count as processed; with automatic
        commits, their offsets are committed first.

        Raises NoCatalogue and UnknownTopicOrPartitionError. Raises SubscriptionError if the
        consumer is subscribed to topics.
        """
        self._check_open()
        requested = [TopicPartition(*partition) for partition in partitions]
        if not requested:
            self.unsubscribe()
            return
        counts = self._partition_counts({partition.topic for partition in requested})
        for topic, number in requested:
            if not 0 <= number < counts[topic]:
                raise UnknownTopicOrPartitionError(
                    f"there is no partition {topic}-{number}: {topic!r} has {counts[topic]}"
                )
        with self._driver.step() as consumer:
            consumer.assign(now_ms(), requested)
        self._records.mark_processed()

    def partitions_for(self, topic: str) -> tuple[TopicPartition, ...]:
        """Return a topic's partitions. Raises NoCatalogue and UnknownTopicOrPartitionError."""
        self._check_open()
        count = self._partition_counts([topic])[topic]
        return tuple(TopicPartition(topic, number) for number in range(count))

    def _partition_counts(
        self, topics: Collection[str], fallback: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Return the number of partitions of these topics, and perhaps of others.

        Raises NoCatalogue, and UnknownTopicOrPartitionError if one of `topics` does not exist.
        """
        counts = self._catalogue(next(iter(topics), "NAME"), fallback)
        unknown = sorted(set(topics) - set(counts))
        if unknown:
            raise UnknownTopicOrPartitionError(
                f"there is no topic {', '.join(map(repr, unknown))} in the catalogue of "
                f"{self._root}: create it with `group-coordinator topics create`"
            )
        return counts

    def _catalogue(self, name: str, fallback: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return each topic's number of partitions, or `fallback` if there is no catalogue.

        Raises NoCatalogue if there is neither; the message suggests creating the topic `name`.
        """
        self._hub.refresh_topics()
        counts = self._hub.topics if self._hub.topics is not None else fallback
        if counts is None:
            raise NoCatalogue(
                f"{self._root} has no catalogue of topics: create a topic with "
                f"`group-coordinator topics create {name} --partitions N --root {self._root}`, "
                "or subscribe to a mapping {name: number of partitions}"
            )
        return dict(counts)

    def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group if the consumer is subscribed."""
        self._check_open()
        with self._driver.step() as consumer:
            consumer.unsubscribe(now_ms())
        self._events.handle_until(
            now_ms() + CLOSE_TIMEOUT_MS, lambda: not self._driver.is_subscribed
        )

    # --- polling --------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Take part in the group, and return the next records of the assigned partitions.

        With a subscription, `poll` joins the group and calls the listeners. The records that the
        last `poll` returned count as processed; automatic commits commit them.

        It returns at most max.poll.records records, as soon as there are any, or none after
        `timeout_ms`. Partitions take turns. A thread reads ahead max.partition.fetch.bytes of each
        partition; a larger record is returned alone. Partitions that are paused or being revoked
        return no records. The other partitions continue during a cooperative rebalance.

        Raises:
            CoordinatorTimeoutError: no coordinator answered for default.api.timeout.ms.
            ConsumerError: another error of the group or of an offset, for example
                FencedInstanceIdError, NoOffsetForPartitionError or OffsetOutOfRangeError.
            CannotFollow: a topic's table was changed, and all records before the change were
                returned. TableReplaced, which is one, is raised as soon as it is found.
            Failure: a row cannot be read; `seek` can skip it.
            SubscriptionError: there are neither a subscription nor assigned partitions.
            Exception: a listener raised it.
        """
        self._records.mark_processed()
        return self._poll(timeout_ms, self._records.collect)

    def _poll(
        self, timeout_ms: int, fetch: Callable[[], dict[TopicPartition, T]]
    ) -> dict[TopicPartition, T]:
        self._check_open()
        with self._driver.step() as consumer:
            if consumer.subscription.mode is SubscriptionType.NONE:
                raise SubscriptionError(
                    "Consumer is not subscribed to any topics or assigned any partitions"
                )
        deadline = now_ms() + timeout_ms
        while True:
            mark = self._events.handle_all()
            results = fetch()
            if results:
                return results
            silence_deadline = self._driver.silence_deadline()
            if now_ms() >= deadline:
                return results
            self._driver.wait(mark, min(deadline, silence_deadline))

    # --- positions and offsets ------------------------------------------------------------------

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record, None while unknown. Raises SubscriptionError."""
        with self._driver.step() as consumer:
            return consumer.subscription.position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position. Raises SubscriptionError if the partition is not assigned."""
        self._check_open()
        with self._driver.step() as consumer:
            consumer.subscription.seek(partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Set the positions of these partitions, or of all assigned ones, to their log starts.

        The next `poll` looks up the offsets. Raises SubscriptionError.
        """
        self._seek_to(AutoOffsetReset.EARLIEST, partitions)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Set the positions of these partitions, or of all assigned ones, to their log ends.

        The next `poll` looks up the offsets. Raises SubscriptionError.
        """
        self._seek_to(AutoOffsetReset.LATEST, partitions)

    def _seek_to(self, end: AutoOffsetReset, partitions: Iterable[TopicPartition] | None) -> None:
        self._check_open()
        requested = self.assignment if partitions is None else tuple(partitions)
        with self._driver.step() as consumer:
            for partition in requested:
                consumer.subscription.request_reset(partition, end)
        self._records.discard_lookups(requested)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit these offsets, or all positions, and return when they are committed.

        Retriable errors are retried for `timeout_ms` (None: default.api.timeout.ms). Raises
        CommitFailedError, RebalanceInProgressError, CoordinatorTimeoutError, FencedInstanceIdError
        and other ConsumerErrors.
        """
        self._check_open()
        self._records.mark_processed(offsets)
        with self._driver.step() as consumer:
            operation = consumer.commit_sync(now_ms(), _with_metadata(offsets), timeout_ms)
        try:
            self._driver.result(operation)
        finally:
            self._events.call_completed()

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        on_commit: OnCommit | None = None,
    ) -> None:
        """Send a commit of these offsets, or of all positions, without waiting or retries.

        A later `poll`, `commit` or `close` calls `on_commit` with the offsets and the error, None
        on success.
        """
        self._check_open()
        self._records.mark_processed(offsets)
        with self._driver.step() as consumer:
            commit_id = consumer.commit_async(now_ms(), _with_metadata(offsets))
        if on_commit is not None:
            self._events.register_callback(commit_id, on_commit)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset of each partition, None if there is none.

        Raises CoordinatorTimeoutError and other ConsumerErrors.
        """
        self._check_open()
        with self._driver.step() as consumer:
            operation = consumer.committed(now_ms(), list(partitions), timeout_ms)
        offsets = self._driver.result(operation)
        return dict(offsets)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return each partition's log start; the partitions need not be assigned.

        Raises UnknownTopicOrPartitionError and TableReplaced. Raises CoordinatorTimeoutError if the
        topics cannot be read for `timeout_ms` (None: default.api.timeout.ms).
        """
        self._check_open()
        bounds = self._records.bounds(tuple(partitions), timeout_ms)
        return {partition: start for partition, (start, _) in bounds.items()}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return each partition's log end, after all rows that the topics have now.

        Raises the errors of `beginning_offsets`.
        """
        self._check_open()
        bounds = self._records.bounds(tuple(partitions), timeout_ms)
        return {partition: end for partition, (_, end) in bounds.items()}

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a time, None if there is none.

        Times are ms since 1970-01-01 UTC. Raises the errors of `beginning_offsets`.
        """
        self._check_open()
        return self._records.offsets_for_times(times, timeout_ms)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return the number of records from the position to the log end as last read.

        Return None while either is unknown. Raises SubscriptionError. Source: KIP-695.
        """
        position = self.position(partition)
        end = self._records.log_end(partition)
        return None if position is None or end is None else max(0, end - position)

    # --- pausing --------------------------------------------------------------------------------

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Exclude these partitions from `poll` until `resume`. Raises SubscriptionError."""
        with self._driver.step() as consumer:
            consumer.subscription.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`. Raises SubscriptionError."""
        with self._driver.step() as consumer:
            consumer.subscription.resume(partitions)

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The paused partitions."""
        with self._driver.step() as consumer:
            return consumer.subscription.paused


def _with_metadata(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None,
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    if offsets is None:
        return None
    return {
        TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        for partition, offset in offsets.items()
    }
