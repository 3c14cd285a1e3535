"""A member of a consumer group, for programs: what Kafka's consumer is, without the fetching.

    with GroupMember(root, "my-group", ["orders"], session_timeout_ms=10_000) as member:
        while True:
            for partition, offset in member.poll(1_000).items():
                rows = read_rows(partition, offset)
                process(rows)
                member.advance(partition, offset + len(rows))

Topics are names with numbers of partitions. What their rows are, and what an offset means, is the
program's: `poll` says which partitions to work on and where to go on, `advance` says how far the
work is done, and that is what is committed: automatically, or by `commit`.

A member is for one thread at a time, as Kafka's consumer is. Its heartbeats come from a thread that
all members of a process share, and go on while the program works; only the interpreter itself, held
for longer than session.timeout.ms, or a program that does not poll for max.poll.interval.ms, costs
the membership. The program finds out at its next `poll` (on_lost) or `commit` (CommitFailedError).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any

from coordinator.config import ConfigError
from coordinator.consumer.errors import ConsumerError, UnknownTopicOrPartitionError
from coordinator.consumer.events import (
    AssignPartitions,
    CommitDone,
    Event,
    LosePartitions,
    RevokePartitions,
)
from coordinator.consumer.positions import OffsetAndMetadata
from coordinator.consumer.protocol import TopicPartition
from coordinator.consumer.settings import AutoOffsetReset, parse_settings
from coordinator.consumer.state import GroupMembershipOperation
from pipeline.client.member_driver import now_ms
from pipeline.client.member_hub import acquire, release
from pipeline.errors import Failure

if TYPE_CHECKING:
    from pipeline.client.request_client import RequestClient

log = logging.getLogger(__name__)

Topics = Iterable[str] | Mapping[str, int] | re.Pattern[str]
OnPartitions = Callable[[tuple[TopicPartition, ...]], None]
OnCommit = Callable[[dict[TopicPartition, OffsetAndMetadata], ConsumerError | None], None]
EndOffset = Callable[[TopicPartition], int]

CLOSE_TIMEOUT_MS = 30_000
# There is one listener's call at most in an end; what fails more often will not end.
_MOST_ERRORS = 3
_numbers = count(1)


class NoCatalogue(Failure):
    """Topics that nobody said the numbers of partitions of."""


class MemberClosed(Failure):
    """A call of a member that is closed."""


def _nothing(_: tuple[TopicPartition, ...]) -> None:
    pass


class GroupMember:
    """One member of a group; joins at its first `poll`.

    `topics` are names of the root's catalogue (`group-coordinator topics create`), or a pattern
    that their whole names match; for a root without a catalogue, a mapping of names to numbers of
    partitions. With a catalogue its numbers count, and a number that grows rebalances the group.

    The listeners are called in the user's thread, out of `poll`, `unsubscribe` and `close`, and may
    commit: `on_revoked` before partitions go, `on_lost` when they are gone already (if it is None,
    `on_revoked`), `on_assigned` after new ones came. What one of them raises comes out of the call.

    A partition without a committed offset begins at 0 (auto.offset.reset "earliest", the default),
    at `end_offset(partition)` ("latest", the default if there is an `end_offset`), or raises
    NoOffsetForPartitionError ("none").

    Settings are Kafka's consumer settings, as keywords with `_` for `.`, or under their own names
    in `settings`. `client` is one to share; without one, the members of a process that name the
    same root share one.

    Raises ConfigError, NoCatalogue, UnknownTopicOrPartitionError, and NoTables where no coordinator
    has run yet.
    """

    def __init__(
        self,
        root: str,
        group_id: str,
        topics: Topics,
        *,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        on_assigned: OnPartitions | None = None,
        end_offset: EndOffset | None = None,
        client: RequestClient | None = None,
        settings: Mapping[str, Any] | None = None,
        **kafka_settings: Any,
    ) -> None:
        self._root = root
        self._on_revoked = on_revoked or _nothing
        self._on_lost = on_lost or self._on_revoked
        self._on_assigned = on_assigned or _nothing
        self._end_offset = end_offset
        self._on_commit: dict[int, OnCommit] = {}
        named = {key.replace("_", "."): value for key, value in kafka_settings.items()}
        given = {
            "client.id": f"consumer-{group_id}-{next(_numbers)}",
            "auto.offset.reset": "earliest" if end_offset is None else "latest",
            **(settings or {}),
            **named,
            "group.id": group_id,
        }
        self.settings = parse_settings(given)
        if self.settings.auto_offset_reset is AutoOffsetReset.LATEST and end_offset is None:
            raise ConfigError(
                "auto.offset.reset is 'latest', and only you know where a partition ends: "
                "give GroupMember an end_offset=, or set it to 'earliest' or 'none'"
            )
        self._closing = self._closed = False
        self._counts: dict[str, int] = {}
        self._hub = acquire(root, client)
        self._driver = self._hub.add(self.settings)
        try:
            self.subscribe(topics)
        except BaseException:
            self._give_back()
            raise

    def __enter__(self) -> GroupMember:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- subscribing ----------------------------------------------------------------------------

    def subscribe(self, topics: Topics) -> None:
        """Subscribe to these in place of the topics before; the next `poll` joins.

        Raises NoCatalogue, UnknownTopicOrPartitionError and SubscriptionError.
        """
        self._check_open()
        self._hub.refresh_topics()
        counts = self._hub.topics
        if counts is None and isinstance(topics, Mapping):
            counts = dict(topics)
        wanted: Any = topics
        if not isinstance(topics, re.Pattern):
            wanted = [topics] if isinstance(topics, str) else list(topics)
        if counts is None:
            name = "NAME" if isinstance(topics, re.Pattern) or not wanted else wanted[0]
            raise NoCatalogue(
                f"{self._root} has no catalogue of topics: "
                f"`group-coordinator topics create {name} --partitions N --root {self._root}` "
                "makes one; or give the topics as a mapping, {name: number of partitions}"
            )
        if not isinstance(topics, re.Pattern):
            unknown = sorted(set(wanted) - set(counts))
            if unknown:
                raise UnknownTopicOrPartitionError(
                    f"there is no topic {', '.join(map(repr, unknown))} in the catalogue of "
                    f"{self._root} (`group-coordinator topics create` makes one)"
                )
        self._counts = counts
        with self._driver.step() as consumer:
            consumer.subscribe(wanted)
        self._hub.tell_topics(self._driver, counts)

    def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group."""
        self._check_open()
        with self._driver.step() as consumer:
            consumer.unsubscribe(now_ms())
        self._poll_until(now_ms() + CLOSE_TIMEOUT_MS, lambda: not self._driver.is_subscribed)

    # --- polling --------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0) -> dict[TopicPartition, int]:
        """Go on with the group, and return the partitions to work on, each with its position.

        It joins, calls the listeners, commits automatically. It returns as soon as there is a
        partition to work on, and after the timeout in any case; a partition is left out while it
        is paused, about to go, or its committed offset is not known yet. In a cooperative rebalance
        the partitions that stay are returned throughout.

        Raises CoordinatorTimeoutError when no coordinator answers for default.api.timeout.ms;
        InvalidSessionTimeoutError, InconsistentGroupProtocolError, FencedInstanceIdError,
        NoOffsetForPartitionError and the other ConsumerErrors; RuntimeError from a listener.
        """
        self._check_open()
        until = now_ms() + timeout_ms
        while True:
            mark = self._drive()
            self._reset_positions()
            with self._driver.step() as consumer:
                work = consumer.subscription.fetchable()
            if work:
                return work
            patience_ends = self._driver.patience_ends()
            if now_ms() >= until:
                return work
            self._driver.wait(mark, min(until, patience_ends))

    def _drive(self) -> int:
        """Take what events there are; returns a mark to wait from."""
        while True:
            event, mark = self._driver.poll()
            if event is None:
                return mark
            self._take(event)

    def _take(self, event: Event) -> None:
        if isinstance(event, CommitDone):
            self._tell(event)
            return
        try:
            if isinstance(event, RevokePartitions):
                self._on_revoked(event.partitions)
            elif isinstance(event, LosePartitions):
                self._on_lost(event.partitions)
            elif isinstance(event, AssignPartitions):
                self._on_assigned(event.partitions)
        finally:
            with self._driver.step() as consumer:
                consumer.callback_done()

    def _tell(self, done: CommitDone) -> None:
        if done.commit_id is None:
            if done.error is not None:
                log.warning("an automatic commit failed: %s", done.error)
            return
        on_commit = self._on_commit.pop(done.commit_id, None)
        if on_commit is not None:
            on_commit(done.offsets, done.error)

    def _reset_positions(self) -> None:
        with self._driver.step() as consumer:
            waiting = consumer.subscription.awaiting_reset()
        for partition, reset in waiting.items():
            offset = 0
            if reset is AutoOffsetReset.LATEST and self._end_offset is not None:
                offset = self._end_offset(partition)
            with self._driver.step() as consumer:
                consumer.subscription.resolve_reset(partition, reset, offset)

    def _poll_until(self, until: int, done: Callable[[], bool]) -> None:
        """Poll until it is done; the first error comes out at the end."""
        errors: list[Exception] = []
        while not done() and now_ms() < until and len(errors) < _MOST_ERRORS:
            try:
                mark = self._drive()
            # A listener's, most likely. What is being ended is to end all the same.
            except Exception as error:
                errors.append(error)
                continue
            if not done():
                self._driver.wait(mark, until)
        if errors:
            raise errors[0]

    # --- offsets --------------------------------------------------------------------------------

    def position(self, partition: TopicPartition) -> int | None:
        """Where the work goes on, None while that is not known. Raises SubscriptionError."""
        with self._driver.step() as consumer:
            return consumer.subscription.position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from an offset. Raises SubscriptionError for a partition that is not assigned."""
        self._check_open()
        with self._driver.step() as consumer:
            consumer.subscription.seek(partition, offset)

    def advance(self, partition: TopicPartition, offset: int) -> None:
        """What is before the offset is done. Raises SubscriptionError, ValueError if that is less.

        A partition that went in the meantime is not this member's to advance.
        """
        before = self.position(partition)
        if before is not None and offset < before:
            raise ValueError(
                f"{partition.topic}-{partition.partition} is at {before}: seek() goes back to "
                f"{offset}, advance() does not"
            )
        self.seek(partition, offset)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit these offsets, or all positions, and return when they are committed.

        Tries again until the timeout (default.api.timeout.ms) where that may help. Raises
        CommitFailedError, RebalanceInProgressError, CoordinatorTimeoutError, FencedInstanceIdError
        and the other ConsumerErrors.
        """
        self._check_open()
        with self._driver.step() as consumer:
            operation = consumer.commit_sync(now_ms(), _offsets(offsets), timeout_ms)
        try:
            self._driver.result(operation)
        finally:
            self._tell_completed()

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        on_commit: OnCommit | None = None,
    ) -> None:
        """Commit these offsets, or all positions, with one attempt and without waiting.

        `on_commit` is called with the offsets and the error, or None, out of a later `poll`,
        `commit` or `close`.
        """
        self._check_open()
        with self._driver.step() as consumer:
            commit_id = consumer.commit_async(now_ms(), _offsets(offsets))
        if on_commit is not None:
            self._on_commit[commit_id] = on_commit

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these partitions, None where nothing.

        Raises CoordinatorTimeoutError and the other ConsumerErrors.
        """
        self._check_open()
        with self._driver.step() as consumer:
            operation = consumer.committed(now_ms(), list(partitions), timeout_ms)
        found = self._driver.result(operation)
        return dict(found)

    def _tell_completed(self) -> None:
        with self._driver.step() as consumer:
            completed = consumer.completed_commits()
        for done in completed:
            self._tell(done)

    # --- pausing --------------------------------------------------------------------------------

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Let `poll` leave these out until they are resumed. Raises SubscriptionError."""
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

    # --- what the member is ---------------------------------------------------------------------

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are the member's now, sorted."""
        with self._driver.step() as consumer:
            return consumer.assignment

    @property
    def topics(self) -> dict[str, int]:
        """The topics subscribed to that there are, each with its number of partitions."""
        counts = self._hub.topics or self._counts
        with self._driver.step() as consumer:
            return {name: counts[name] for name in consumer.subscription.topics if name in counts}

    @property
    def generation(self) -> int:
        """The generation that the member is of, -1 outside of the group."""
        with self._driver.step() as consumer:
            return consumer.generation.generation_id

    @property
    def member_id(self) -> str:
        """The id that the coordinator gave it, empty outside of the group."""
        with self._driver.step() as consumer:
            return consumer.generation.member_id

    # --- the end --------------------------------------------------------------------------------

    def close(
        self,
        timeout_ms: int = CLOSE_TIMEOUT_MS,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Commit if commits are automatic, give up the partitions, leave. A second call is none.

        A member with a group.instance.id stays in the group until its session ends, so that its
        restart is no rebalance, unless `operation` says otherwise.
        """
        if self._closed or self._closing:
            return
        self._closing = True
        try:
            until = now_ms() + timeout_ms
            with self._driver.step() as consumer:
                consumer.close(now_ms(), timeout_ms, operation)
            self._poll_until(until, lambda: self._driver.is_closed)
            self._tell_completed()
        finally:
            self._give_back()

    def _give_back(self) -> None:
        self._closed = True
        self._hub.remove(self._driver)
        release(self._hub)

    def _check_open(self) -> None:
        if self._closed:
            raise MemberClosed(f"this member of group {self.settings.group_id!r} is closed")


def _offsets(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None,
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    if offsets is None:
        return None
    return {
        TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        for partition, offset in offsets.items()
    }
