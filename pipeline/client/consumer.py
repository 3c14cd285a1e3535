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
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from group_coordinator.coordinator.consumer.errors import UnknownTopicOrPartitionError
from group_coordinator.coordinator.consumer.positions import OffsetAndMetadata
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.settings import AutoOffsetReset, parse_settings
from group_coordinator.coordinator.consumer.state import GroupMembershipOperation
from group_coordinator.coordinator.consumer.subscription import SubscriptionError, SubscriptionType
from group_coordinator.pipeline.client.consumer_record import ConsumerRecord
from group_coordinator.pipeline.client.member_driver import now_ms
from group_coordinator.pipeline.client.member_events import MemberEvents, OnCommit, OnPartitions
from group_coordinator.pipeline.client.member_hub import acquire, release
from group_coordinator.pipeline.client.member_records import MemberRecords
from group_coordinator.pipeline.client.offset_lookup import OffsetAndTimestamp
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from group_coordinator.pipeline.client.request_client import RequestClient

T = TypeVar("T")
Topics = Iterable[str] | Mapping[str, int] | re.Pattern[str]

CLOSE_TIMEOUT_MS = 30_000
_numbers = count(1)


class NoCatalogue(Failure):
    """Topics whose numbers of partitions are unknown, because the root has no catalogue."""


class MemberClosed(Failure):
    """A method was called on a consumer that is closed."""


class Consumer:
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

    def __init__(
        self,
        root: str,
        group_id: str | None = None,
        *,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        on_assigned: OnPartitions | None = None,
        whole_rows: bool = False,
        client: RequestClient | None = None,
        settings: Mapping[str, Any] | None = None,
        **kafka_settings: Any,
    ) -> None:
        number = next(_numbers)
        named = {key.replace("_", "."): value for key, value in kafka_settings.items()}
        given = {
            "client.id": f"consumer-{number if group_id is None else f'{group_id}-{number}'}",
            "auto.offset.reset": "earliest",
            **(settings or {}),
            **named,
            "group.id": group_id,
        }
        self.settings = parse_settings(given)
        self._root = root
        self._closing = self._closed = False
        self._counts: dict[str, int] = {}
        self._hub = acquire(root, client, asks=group_id is not None)
        try:
            self._driver = self._hub.add(self.settings)
        except BaseException:
            release(self._hub)
            raise
        self._events = MemberEvents(self._driver, on_revoked, on_lost, on_assigned)
        self._records = MemberRecords(root, self.settings, whole_rows, self._driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; records that the program was given last and failed on are not committed."""
        if error is not None:
            self._records.take_back()
        self.close()

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

    # --- offsets --------------------------------------------------------------------------------

    def position(self, partition: TopicPartition) -> int | None:
        """The offset to continue at, None while it is not known. Raises SubscriptionError."""
        with self._driver.step() as consumer:
            return consumer.subscription.position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset. Raises SubscriptionError for a partition that is not assigned."""
        self._check_open()
        with self._driver.step() as consumer:
            consumer.subscription.seek(partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Continue at the log start, of all assigned partitions unless some are named.

        The next `poll` looks it up. Raises SubscriptionError.
        """
        self._seek_to(AutoOffsetReset.EARLIEST, partitions)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Continue at the log end, of all assigned partitions unless some are named.

        The next `poll` looks it up. Raises SubscriptionError.
        """
        self._seek_to(AutoOffsetReset.LATEST, partitions)

    def _seek_to(self, end: AutoOffsetReset, partitions: Iterable[TopicPartition] | None) -> None:
        self._check_open()
        wanted = self.assignment if partitions is None else tuple(partitions)
        with self._driver.step() as consumer:
            for one in wanted:
                consumer.subscription.request_reset(one, end)
        self._records.forget_lookups(wanted)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit these offsets, or all positions, and return when they are committed.

        Retriable errors are retried until the timeout (default.api.timeout.ms). Raises
        CommitFailedError, RebalanceInProgressError, CoordinatorTimeoutError, FencedInstanceIdError
        and the other ConsumerErrors.
        """
        self._check_open()
        self._records.keep(offsets)
        with self._driver.step() as consumer:
            operation = consumer.commit_sync(now_ms(), _offsets(offsets), timeout_ms)
        try:
            self._driver.result(operation)
        finally:
            self._events.tell_completed()

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        on_commit: OnCommit | None = None,
    ) -> None:
        """Commit these offsets, or all positions, with one attempt and without waiting.

        A later `poll`, `commit` or `close` calls `on_commit` with the offsets and the error, None
        on success.
        """
        self._check_open()
        self._records.keep(offsets)
        with self._driver.step() as consumer:
            commit_id = consumer.commit_async(now_ms(), _offsets(offsets))
        if on_commit is not None:
            self._events.call_at_commit(commit_id, on_commit)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset of each partition, None where there is none.

        Raises CoordinatorTimeoutError and the other ConsumerErrors.
        """
        self._check_open()
        with self._driver.step() as consumer:
            operation = consumer.committed(now_ms(), list(partitions), timeout_ms)
        found = self._driver.result(operation)
        return dict(found)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return each partition's log start, whether it is assigned or not.

        Raises UnknownTopicOrPartitionError, TableReplaced, and CoordinatorTimeoutError if the
        topics cannot be read for default.api.timeout.ms.
        """
        self._check_open()
        found = self._records.bounds(tuple(partitions), timeout_ms)
        return {one: start for one, (start, _) in found.items()}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return each partition's log end, the rows up to now counted, as `beginning_offsets`."""
        self._check_open()
        found = self._records.bounds(tuple(partitions), timeout_ms)
        return {one: end for one, (_, end) in found.items()}

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a time, ms since 1970-01-01 UTC.

        None if there is none. Raises as `beginning_offsets` does.
        """
        self._check_open()
        return self._records.at_times(times, timeout_ms)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return how many records lie between the position and the log end as last read.

        None while either is not known (KIP-695). Raises SubscriptionError.
        """
        position = self.position(partition)
        end = self._records.log_end(partition)
        return None if position is None or end is None else max(0, end - position)

    # --- pausing --------------------------------------------------------------------------------

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Leave these out of `poll`'s result until `resume`. Raises SubscriptionError."""
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

    # --- its state ------------------------------------------------------------------------------

    @property
    def subscription(self) -> frozenset[str]:
        """The names of the topics subscribed to; those that a pattern matches."""
        with self._driver.step() as consumer:
            return consumer.subscription.topics

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are assigned now, by the group or by `assign`, sorted."""
        with self._driver.step() as consumer:
            return consumer.assignment

    @property
    def topics(self) -> dict[str, int]:
        """The subscribed topics that exist, each with its number of partitions."""
        counts = self._hub.topics or self._counts
        with self._driver.step() as consumer:
            return {name: counts[name] for name in consumer.subscription.topics if name in counts}

    @property
    def generation(self) -> int:
        """The generation of the member, -1 outside of the group."""
        with self._driver.step() as consumer:
            return consumer.generation.generation_id

    @property
    def member_id(self) -> str:
        """The member id that the coordinator assigned, empty outside of the group."""
        with self._driver.step() as consumer:
            return consumer.generation.member_id

    # --- closing --------------------------------------------------------------------------------

    def close(
        self,
        timeout_ms: int = CLOSE_TIMEOUT_MS,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Commit if commits are automatic, revoke the partitions, and leave the group.

        A second call does nothing. A member with a group.instance.id stays in the group until its
        session ends, so that its restart causes no rebalance, unless `operation` says otherwise.
        """
        if self._closed or self._closing:
            return
        self._closing = True
        try:
            until = now_ms() + timeout_ms
            with self._driver.step() as consumer:
                consumer.close(now_ms(), timeout_ms, operation)
            self._events.handle_until(until, lambda: self._driver.is_closed)
            self._events.tell_completed()
        finally:
            self._give_back()

    def _give_back(self) -> None:
        self._closed = True
        self._records.close()
        self._hub.remove(self._driver)
        release(self._hub)

    def _check_open(self) -> None:
        if self._closed:
            group = self.settings.group_id
            what = "consumer" if group is None else f"member of group {group!r}"
            raise MemberClosed(f"this {what} is closed")


def _offsets(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None,
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    if offsets is None:
        return None
    return {
        TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        for partition, offset in offsets.items()
    }
