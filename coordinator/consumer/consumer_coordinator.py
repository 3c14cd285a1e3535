"""The consumer coordinator: its input is calls, timers and answers, its output requests and events.

Pure: the time is an argument of the calls, and the constructor takes the sources of request ids and
random numbers. It is not thread-safe: the driver holds one lock around each call. The driver uses
two threads:

* The user's thread calls `poll` and the user's calls: `subscribe`, commits, `seek`, `close`. Only
  `poll` joins, commits automatically, and returns events. For RevokePartitions, LosePartitions and
  AssignPartitions the driver runs the listener, for CallAssignor its `run`. It does so without the
  lock, and then calls `callback_done`, for which the rebalance waits.
* A background thread calls `tick`. It sends heartbeats, finds the coordinator, times out requests,
  retries commits and detects an expired session. It leaves the group if the user has not polled for
  max.poll.interval.ms.

Any thread may call `response`. After each call there may be requests to send (`take_requests`) and
lines to log (`take_log_lines`). Source: Kafka's ConsumerCoordinator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from group_coordinator.coordinator.consumer.backoff import ExponentialBackoff, Jitter
from group_coordinator.coordinator.consumer.calls import Committed, Operation, PendingCalls, Queries
from group_coordinator.coordinator.consumer.consumer_errors import (
    NoOffsetForPartitionError,
    required_group_id,
)
from group_coordinator.coordinator.consumer.consumer_settings import ConsumerSettings
from group_coordinator.coordinator.consumer.coordinator_requests import (
    CoordinatorLookup,
    InFlightRequests,
)
from group_coordinator.coordinator.consumer.events import CallAssignor, CommitDone, Event, LogLine
from group_coordinator.coordinator.consumer.heartbeat_timers import Heartbeat
from group_coordinator.coordinator.consumer.member_rebalance import WAIT, Rebalance, Steps, Wait
from group_coordinator.coordinator.consumer.member_state import (
    Generation,
    GroupMembershipOperation,
    MemberState,
)
from group_coordinator.coordinator.consumer.membership import Membership
from group_coordinator.coordinator.consumer.offset_commits import (
    AutoCommit,
    OffsetCommits,
    PartitionOffsets,
)
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.subscription_state import SubscriptionState
from group_coordinator.schemas.messages import RequestEvent, Response


class ConsumerCoordinator:
    """One consumer. Without a group it sends no request; with `assign` it does not join its group.

    `new_request_id` returns unique ids; `jitter` returns random numbers in [0, 1). `subscription`
    has the assigned partitions with their positions; the driver calls its `seek`, `pause`, `resume`
    and `request_reset`. `closed`: whether `close` has completed.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        new_request_id: Callable[[], str],
        jitter: Jitter,
        now: int,
    ) -> None:
        self.settings = settings
        self.subscription = SubscriptionState()
        self.closed = False
        self._log_lines: list[LogLine] = []
        backoff = ExponentialBackoff(settings, jitter)
        self._requests = InFlightRequests(settings, new_request_id)
        self._lookup = CoordinatorLookup(settings, self._requests, backoff, self._log_lines)
        self._heartbeat = Heartbeat(settings, backoff, now)
        self._membership = Membership(
            settings, self._requests, self._lookup, self._heartbeat, self._log_lines
        )
        self._calls = PendingCalls(self._lookup, backoff)
        self._commits = OffsetCommits(
            settings,
            self._requests,
            self._lookup,
            self._membership,
            self.subscription,
            self._calls,
        )
        self._queries = Queries(settings, self._requests, self._lookup, self._calls)
        self._auto_commit = AutoCommit(settings, self._commits, self.subscription, now)
        self._rebalance = Rebalance(
            settings,
            self.subscription,
            backoff,
            self._membership,
            self._lookup,
            self._auto_commit,
            self._queries,
            self._log_lines,
        )
        self._commit_ids = 0
        # The steps in progress in the user's thread; None: the next poll begins with `_begin`.
        self._steps: Steps | None = None
        self._begin: Callable[[int], Steps] = self._poll_steps
        self._leaving = False
        self._last_step: Event | Wait = WAIT
        self._in_callback = False
        self._position_fetch: tuple[int, Operation[Committed]] | None = None

    # --- the user's calls -----------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str] | re.Pattern[str]) -> None:
        """Subscribe to topics, or to all topics with a name that the pattern matches completely.

        Replaces the previous subscription; the next poll joins. Raises SubscriptionError, and
        InvalidGroupIdError without a group.
        """
        required_group_id(self.settings)
        if isinstance(topics, re.Pattern):
            self.subscription.subscribe_pattern(topics)
        else:
            self.subscription.subscribe([topics] if isinstance(topics, str) else topics)
        self._rebalance.subscription_changed()

    def assign(self, now: int, partitions: Iterable[TopicPartition]) -> None:
        """Assign these partitions in place of the previous ones, without joining the group.

        No listener is called. Without partitions this is `unsubscribe`. A new partition starts at
        the group's committed offset; one that stays assigned keeps its position. If automatic
        commits are on, the previous positions are committed. Raises SubscriptionError for an
        invalid partition, and while the consumer is subscribed to topics or a pattern.
        """
        assigned = tuple(partitions)
        if not assigned:
            self.unsubscribe(now)
            return
        before = self.subscription.consumed()
        self.subscription.assign_from_user(assigned)
        # Kafka's consumer commits here only if auto.commit.interval.ms is over. That may lose
        # positions, because no rebalance commits them later.
        if before and self._auto_commit.is_enabled:
            self._commits.commit_async(now, before)

    def unsubscribe(self, now: int) -> None:
        """Begin to give up all partitions and to leave; poll until `is_subscribed` is False."""
        if self.subscription.is_subscribed:
            self._begin_leaving(now, self._unsubscribe_steps)
        else:
            self.subscription.unsubscribe()

    def update_topics(self, topics: Mapping[str, int]) -> None:
        """Set the catalogue: every topic with its number of partitions.

        The member joins only after the first catalogue. It joins again if the topics that its
        pattern matches change; a leader also if a topic of the group, or its number of partitions,
        changes.
        """
        self._rebalance.update_topics(topics)

    def close(
        self,
        now: int,
        timeout_ms: int = 30_000,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Begin to close: commit automatically if enabled, give up all partitions, and leave.

        Poll until `closed`. The poll after `timeout_ms` closes the consumer even if the coordinator
        does not answer. With internal.leave.group.on.close false, no listener is called and the
        consumer does not leave.
        """
        self._in_callback = False
        close_steps = partial(self._close_steps, ends_at=now + timeout_ms, operation=operation)
        self._begin_leaving(now, close_steps)

    def commit_async(self, now: int, offsets: PartitionOffsets | None = None) -> int:
        """Start a commit of these offsets, or of all positions; return its id.

        A CommitDone with this id has the result. Raises FencedInstanceIdError,
        GroupAuthorizationError, InvalidGroupIdError without a group, and ValueError for a negative
        offset.
        """
        required_group_id(self.settings)
        self._membership.raise_failure()
        self._commit_ids += 1
        offsets = self.subscription.consumed() if offsets is None else offsets
        self._commits.commit_async(now, offsets, self._commit_ids)
        return self._commit_ids

    def commit_sync(
        self, now: int, offsets: PartitionOffsets | None = None, timeout_ms: int | None = None
    ) -> Operation[None]:
        """Start a commit of these offsets, or of all positions; return its operation.

        Retriable failures are retried for `timeout_ms`, by default default.api.timeout.ms.
        Asynchronous commits made earlier end before the operation succeeds, so the driver handles
        `completed_commits` before it returns to the user. The operation fails with
        CommitFailedError, RebalanceInProgressError, FencedInstanceIdError, GroupAuthorizationError,
        TopicAuthorizationError, OffsetMetadataTooLargeError or CoordinatorTimeoutError. The call
        itself raises the errors of `commit_async`.
        """
        required_group_id(self.settings)
        self._membership.raise_failure()
        offsets = self.subscription.consumed() if offsets is None else offsets
        return self._commits.commit_sync(now, offsets, self._timeout(timeout_ms))

    def completed_commits(self) -> list[CommitDone]:
        """Remove and return the results of asynchronous commits that `poll` has not returned."""
        done = list(self._commits.completed)
        self._commits.completed.clear()
        return done

    def committed(
        self, now: int, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> Operation[Committed]:
        """Start to fetch the group's committed offsets of these partitions; return the operation.

        Its value has None for a partition without one. It fails with CoordinatorTimeoutError after
        `timeout_ms` (default.api.timeout.ms), GroupAuthorizationError, TopicAuthorizationError or
        UnknownTopicOrPartitionError. Raises InvalidGroupIdError without a group.
        """
        required_group_id(self.settings)
        timeout_ms = self._timeout(timeout_ms)
        return self._queries.fetch_committed_offsets(now, partitions, timeout_ms)

    def _timeout(self, timeout_ms: int | None) -> int:
        return self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms

    # --- the user's thread ----------------------------------------------------------------------

    def poll(self, now: int) -> Event | None:
        """Continue the user thread's work; return the next event, None if there is none yet.

        Call it until it returns None, and again after each answer and at `poll_deadline`. Raises
        ConsumerError for an error that the user must handle, and RuntimeError if `callback_done`
        was not called for the last event.
        """
        if self._in_callback:
            raise RuntimeError("poll() while the listener runs: callback_done() was not called")
        if self._commits.completed:
            return self._commits.completed.popleft()
        if self.subscription.is_subscribed and not self._leaving:
            self._membership.raise_failure()
            self._heartbeat.poll(now)
            self._lookup.request_lookup()
        self.tick(now)
        failure = self._lookup.failure
        if failure is not None and not self._leaving:
            self._lookup.failure = None
            raise failure
        return self._resume_steps(now)

    def callback_done(self) -> None:
        """Record that the listener or assignor has returned or raised; the next poll continues."""
        self._in_callback = False

    def _resume_steps(self, now: int) -> Event | None:
        if self.closed:
            return None
        try:
            if self._steps is None:
                self._steps = self._begin(now)
                step = next(self._steps)
            else:
                step = self._steps.send(now)
        except StopIteration:
            self._steps = None
            self._begin = self._poll_steps
            self._leaving = False
            return None
        except Exception:
            # The steps keep no state of their own, so the next poll can restart them.
            self._steps = None
            raise
        self._last_step = step
        if isinstance(step, Wait):
            return None
        self._in_callback = True
        return step

    def _poll_steps(self, now: int) -> Steps:
        while True:
            if self._rebalance.needs_join(now):
                now = yield from self._rebalance.run(now)
            self._refresh_positions(now)
            self._auto_commit.poll(now)
            now = yield Wait(self._auto_commit.deadline)

    def _refresh_positions(self, now: int) -> None:
        """Initialize unknown positions from committed offsets, or without one by auto.offset.reset.

        Raises NoOffsetForPartitionError, and the error of the fetch of committed offsets.
        """
        subscription = self.subscription
        if self._position_fetch is not None:
            assignment_id, fetch = self._position_fetch
            if assignment_id == subscription.assignment_id and not fetch.done:
                return
            self._position_fetch = None
            if assignment_id == subscription.assignment_id:
                self._initialize_positions(fetch.result())
        initializing = subscription.initializing
        if initializing and self.settings.group_id is None:
            self._initialize_positions(dict.fromkeys(initializing))
        elif initializing:
            fetch = self._queries.fetch_committed_offsets(now, initializing)
            self._position_fetch = (subscription.assignment_id, fetch)

    def _initialize_positions(self, committed: Committed) -> None:
        without_offset = self.subscription.refresh(committed, self.settings.auto_offset_reset)
        if without_offset:
            names = ", ".join(f"{topic}-{number}" for topic, number in without_offset)
            raise NoOffsetForPartitionError(
                f"no offset is committed for {names}, and auto.offset.reset is 'none': seek first"
            )

    # --- leaving --------------------------------------------------------------------------------

    def _begin_leaving(self, now: int, begin: Callable[[int], Steps]) -> None:
        """Drop the steps in progress; the next poll begins with the steps of `begin`."""
        if self._steps is not None and not isinstance(self._last_step, Wait | CallAssignor):
            # The listener has run for this event. Apply the event, or the listener would run
            # again. After an assignor's call nothing is applied: a join or an event would follow.
            with suppress(StopIteration):
                self._steps.send(now)
        self._steps = None
        self._last_step = WAIT
        self._begin = begin
        self._leaving = True

    def _unsubscribe_steps(self, now: int) -> Steps:
        reason = "the consumer unsubscribed from all topics"
        now = yield from self._rebalance.give_up_partitions(now, reason)
        self._membership.leave(now, reason)
        self.subscription.unsubscribe()
        self._rebalance.reset()
        return now

    def _close_steps(self, now: int, ends_at: int, operation: GroupMembershipOperation) -> Steps:
        if self._auto_commit.is_enabled:
            offsets = self.subscription.consumed()
            commit = self._commits.commit_sync(now, offsets, max(0, ends_at - now))
            while not commit.done and now < ends_at:
                now = yield Wait(ends_at)
            if commit.error is not None:
                text = f"the automatic commit at close failed: {commit.error}"
                self._log_lines.append(LogLine(now, "warning", text))
        while self._commits.pending and now < ends_at:
            now = yield Wait(ends_at)
        if self.settings.internal_leave_group_on_close and self.is_subscribed:
            reason = "the consumer is being closed"
            now = yield from self._rebalance.give_up_partitions(now, reason)
            self._membership.leave(now, reason, operation)
        while self._requests.count and self._lookup.node is not None and now < ends_at:
            now = yield Wait(ends_at)
        self.closed = True
        return now

    # --- any thread -----------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Run the timers that do not need the user's thread; call it at `tick_deadline`."""
        if self.closed:
            return
        self._lookup.tick(now)
        self._membership.tick(now)
        self._calls.tick(now)
        # Again, because the membership or a call may have requested the coordinator just now.
        self._lookup.tick(now)

    def response(self, now: int, response: Response) -> bool:
        """Handle an answer; return False if its request is not in flight or the consumer is closed.

        If True, the driver wakes the user's thread.
        """
        return not self.closed and self._requests.complete(now, response)

    def take_requests(self) -> list[RequestEvent]:
        """Remove and return the requests to send now, in order."""
        return self._requests.take()

    def take_log_lines(self) -> list[LogLine]:
        """Remove and return the lines to log."""
        log_lines = list(self._log_lines)
        self._log_lines.clear()
        return log_lines

    @property
    def tick_deadline(self) -> int | None:
        """The time (absolute ms) at which `tick` is due; None if no timer runs."""
        if self.closed:
            return None
        sources = (self._requests, self._lookup, self._membership, self._calls)
        times = [source.deadline for source in sources]
        return min((time for time in times if time is not None), default=None)

    @property
    def poll_deadline(self) -> int | None:
        """The time (absolute ms) at which `poll` is due even without an answer; None for never."""
        step = self._last_step
        if self.closed or self._membership.failure is not None or not isinstance(step, Wait):
            return None
        return step.at

    # --- state ----------------------------------------------------------------------------------

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions, sorted."""
        return self.subscription.assigned

    @property
    def is_subscribed(self) -> bool:
        """Whether the consumer is subscribed to topics or a pattern, so that the group assigns."""
        return self.subscription.is_subscribed

    @property
    def unknown_topics(self) -> frozenset[str]:
        """The subscribed topics that the catalogue lacks; none before the first catalogue."""
        return self._rebalance.unknown_topics()

    @property
    def state(self) -> MemberState:
        """The member's state in the group."""
        return self._membership.state

    @property
    def generation(self) -> Generation:
        """The generation, member id and selected assignor, as in Kafka's groupMetadata()."""
        return self._membership.generation

    @property
    def is_leader(self) -> bool:
        """Whether the member leads its present generation."""
        return self._rebalance.is_leader

    @property
    def is_rejoining(self) -> bool:
        """Whether the next poll begins or continues a rebalance."""
        membership = self._membership
        return self.is_subscribed and (membership.rejoin_needed or membership.joining)
