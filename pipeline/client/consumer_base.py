"""Base of all consumers: creation, state, events, records and closing.

All listeners, assignors and commit callbacks run in the user's thread, within `poll`, `commit`,
`unsubscribe` and `close`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar

from group_coordinator.coordinator.consumer.consumer_errors import ConsumerError
from group_coordinator.coordinator.consumer.consumer_settings import (
    ConsumerSettings,
    parse_settings,
)
from group_coordinator.coordinator.consumer.events import (
    AssignPartitions,
    CallAssignor,
    CommitDone,
    Event,
    LosePartitions,
    RevokePartitions,
)
from group_coordinator.coordinator.consumer.member_state import GroupMembershipOperation
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.subscription_state import OffsetAndMetadata
from group_coordinator.pipeline.client.consumer_record import (
    ConsumerRecord,
    OffsetAndTimestamp,
    consumer_records,
    log_bounds,
    offset_for_time,
)
from group_coordinator.pipeline.client.fetcher import Fetcher
from group_coordinator.pipeline.client.member_driver import MemberDriver, now_ms
from group_coordinator.pipeline.client.member_hub import acquire, release
from group_coordinator.pipeline.client.request_client import RequestClient
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.topics import TableTopics

log = logging.getLogger(__name__)

OnPartitions = Callable[[tuple[TopicPartition, ...]], None]
OnCommit = Callable[[dict[TopicPartition, OffsetAndMetadata], ConsumerError | None], None]

# Closing calls at most one listener, so this many errors mean that it makes no progress.
_MAX_ERRORS = 3


def _nothing(_: tuple[TopicPartition, ...]) -> None:
    pass


class EventHandler:
    """Calls the user's listeners and commit callbacks for the events of one consumer.

    `on_revoked` is also called for lost partitions if `on_lost` is None.
    """

    def __init__(
        self,
        driver: MemberDriver,
        on_revoked: OnPartitions | None,
        on_lost: OnPartitions | None,
        on_assigned: OnPartitions | None,
    ) -> None:
        self._driver = driver
        self._on_revoked = on_revoked or _nothing
        self._on_lost = on_lost or self._on_revoked
        self._on_assigned = on_assigned or _nothing
        self._on_commit: dict[int, OnCommit] = {}

    def handle_all(self) -> int:
        """Handle all pending events; return the number of changes so far, for `MemberDriver.wait`.

        Raises ConsumerError, and the exceptions of listeners and assignors.
        """
        while True:
            event, mark = self._driver.poll()
            if event is None:
                return mark
            self._handle(event)

    def handle_until(self, deadline: int, done: Callable[[], bool]) -> None:
        """Handle events until `done()`, `_MAX_ERRORS` errors, or the time `deadline` (ms).

        Raises the first error at the end.
        """
        errors: list[Exception] = []
        while not done() and now_ms() < deadline and len(errors) < _MAX_ERRORS:
            try:
                mark = self.handle_all()
            # Most likely an exception of a listener. Closing continues, and raises it at its end.
            except Exception as error:
                errors.append(error)
                continue
            if not done():
                self._driver.wait(mark, deadline)
        if errors:
            raise errors[0]

    def register_callback(self, commit_id: int, on_commit: OnCommit) -> None:
        """Register `on_commit` for the end of a commit, successful or not."""
        self._on_commit[commit_id] = on_commit

    def call_completed(self) -> None:
        """Call the callbacks of completed commits, without handling other events."""
        with self._driver.step() as consumer:
            completed = consumer.completed_commits()
        for done in completed:
            self._call_commit_callback(done)

    def _handle(self, event: Event) -> None:
        if isinstance(event, CommitDone):
            self._call_commit_callback(event)
            return
        try:
            if isinstance(event, RevokePartitions):
                self._on_revoked(event.partitions)
            elif isinstance(event, LosePartitions):
                self._on_lost(event.partitions)
            elif isinstance(event, AssignPartitions):
                self._on_assigned(event.partitions)
            elif isinstance(event, CallAssignor):
                event.run()
        finally:
            with self._driver.step() as consumer:
                consumer.callback_done()

    def _call_commit_callback(self, done: CommitDone) -> None:
        if done.commit_id is None:
            if done.error is not None:
                log.warning("an automatic commit failed: %s", done.error)
            return
        on_commit = self._on_commit.pop(done.commit_id, None)
        if on_commit is not None:
            on_commit(done.offsets, done.error)


T = TypeVar("T")


class MemberRecords:
    """The reader of one member's topics.

    Its thread starts at the first use: a program that only calls `poll_positions` reads the rows
    itself.
    """

    def __init__(
        self, root: str, settings: ConsumerSettings, whole_rows: bool, driver: MemberDriver
    ) -> None:
        self._root, self._settings, self._whole_rows = root, settings, whole_rows
        self._driver = driver
        self._fetcher: Fetcher | None = None
        # The first offset that the last `poll` returned of each partition, and the one after the
        # last.
        self._returned: dict[TopicPartition, tuple[int, int]] = {}

    def collect(self) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the next records of the assigned partitions that have some."""
        fetcher = self._running_fetcher()
        with self._driver.step() as consumer:
            fetched = fetcher.collect(consumer.subscription)
        self._returned = {
            partition: (records[0].offset, records[-1].offset + 1)
            for partition, records in fetched.items()
        }
        return {
            partition: consumer_records(partition, records)
            for partition, records in fetched.items()
        }

    def rewind(self) -> None:
        """Seek back to the records of the last `poll`, unless the position has changed since."""
        with self._driver.step() as consumer:
            assigned = consumer.subscription.assignment
            for partition, (first, after) in self._returned.items():
                if partition in assigned and assigned[partition].offset == after:
                    consumer.subscription.seek(partition, first)

    def mark_processed(self, offsets: Mapping[TopicPartition, object] | None = None) -> None:
        """Exclude these partitions, or all, from `rewind`: their records are processed."""
        if offsets is None:
            self._returned = {}
        for partition in offsets or ():
            self._returned.pop(TopicPartition(*partition), None)

    def discard_lookups(self, partitions: Collection[TopicPartition]) -> None:
        """Discard the log starts and ends of these partitions that were looked up."""
        if self._fetcher is not None:
            self._fetcher.discard_lookups(partitions)

    def bounds(
        self, partitions: tuple[TopicPartition, ...], timeout_ms: int | None
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return each partition's log start and log end. Raises the errors of `_look_up`."""
        return self._look_up(
            partitions,
            lambda logs: {partition: log_bounds(logs, partition) for partition in partitions},
            timeout_ms,
        )

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a time (ms)."""
        return self._look_up(
            tuple(times),
            lambda logs: {
                partition: offset_for_time(logs, partition, time)
                for partition, time in times.items()
            },
            timeout_ms,
        )

    def log_end(self, partition: TopicPartition) -> int | None:
        """Return the partition's log end as last read; None before the first read."""
        return None if self._fetcher is None else self._fetcher.log_end(partition)

    def close(self) -> None:
        """Stop the read-ahead thread."""
        if self._fetcher is not None:
            self._fetcher.close()

    def _running_fetcher(self) -> Fetcher:
        if self._fetcher is None:
            self._fetcher = Fetcher(
                self._root, self._settings, self._whole_rows, self._driver.wake_user
            )
        return self._fetcher

    def _look_up(
        self,
        partitions: tuple[TopicPartition, ...],
        lookup: Callable[[TableTopics], T],
        timeout_ms: int | None,
    ) -> T:
        """Run a lookup in the fetcher's thread. Raises the errors of `Fetcher.look_up`.

        `timeout_ms` None is default.api.timeout.ms.
        """
        limit = self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return self._running_fetcher().look_up(
            {partition.topic for partition in partitions}, lookup, limit
        )


CLOSE_TIMEOUT_MS = 30_000
_numbers = count(1)


class MemberClosed(Failure):
    """Error of a method that was called on a closed consumer."""


class ConsumerBase:
    """A consumer's settings, driver, records and state. `Consumer` documents the arguments."""

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
        values = {
            "client.id": f"consumer-{number if group_id is None else f'{group_id}-{number}'}",
            "auto.offset.reset": "earliest",
            **(settings or {}),
            **named,
            "group.id": group_id,
        }
        self.settings = parse_settings(values)
        self._root = root
        self._closing = self._closed = False
        self._counts: dict[str, int] = {}
        self._hub = acquire(root, client, needs_coordinator=group_id is not None)
        try:
            self._driver = self._hub.add(self.settings)
        except BaseException:
            release(self._hub)
            raise
        self._events = EventHandler(self._driver, on_revoked, on_lost, on_assigned)
        self._records = MemberRecords(root, self.settings, whole_rows, self._driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the consumer.

        After an exception, the records of the last `poll` are not committed: the program failed on
        them.
        """
        if error is not None:
            self._records.rewind()
        self.close()

    # --- its state ------------------------------------------------------------------------------

    @property
    def subscription(self) -> frozenset[str]:
        """The names of the subscribed topics; with a pattern, the names that match it."""
        with self._driver.step() as consumer:
            return consumer.subscription.topics

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that the group or `assign` has assigned, sorted."""
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
        """The member's generation, -1 while it is not in the group."""
        with self._driver.step() as consumer:
            return consumer.generation.generation_id

    @property
    def member_id(self) -> str:
        """The member id that the coordinator assigned, empty while it is not in the group."""
        with self._driver.step() as consumer:
            return consumer.generation.member_id

    # --- closing --------------------------------------------------------------------------------

    def close(
        self,
        timeout_ms: int = CLOSE_TIMEOUT_MS,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Commit if commits are automatic, revoke the partitions, and leave the group.

        A static member (group.instance.id) stays in the group until its session ends, so that a
        restart causes no rebalance. `operation` overrides this (KIP-1092). A second call does
        nothing.

        Waits at most `timeout_ms`. Raises the first error of a listener or of the group.
        """
        if self._closed or self._closing:
            return
        self._driver.guard.check()
        self._closing = True
        try:
            deadline = now_ms() + timeout_ms
            with self._driver.step() as consumer:
                consumer.close(now_ms(), timeout_ms, operation)
            self._events.handle_until(deadline, lambda: self._driver.is_closed)
            self._events.call_completed()
        finally:
            self._release()

    def _release(self) -> None:
        self._closed = True
        self._records.close()
        self._hub.remove(self._driver)
        release(self._hub)

    def _check_open(self) -> None:
        self._driver.guard.check()
        if self._closed:
            group = self.settings.group_id
            what = "consumer" if group is None else f"member of group {group!r}"
            raise MemberClosed(f"this {what} is closed")
