"""The consumer coordinator: a user's call, a timer or an answer in; requests and events out.

A consumer without a group, or that chooses its partitions itself (`assign`), is one too: it never
joins, and without a group it makes no request at all.

Pure: the time is an argument of every call; how to make request ids and randomness are arguments of
the constructor. It is not thread-safe: the driver holds one lock around each call. Two threads may
use it.

* The user's thread calls `poll` and the user's own calls: `subscribe`, commits, `seek`, `close`.
  Only `poll` joins, commits automatically, and returns events. After a RevokePartitions,
  LosePartitions or AssignPartitions the driver runs the listener, after a CallAssignor its `run`,
  without the lock, and then calls `callback_done`; the rebalance waits for that.
* A background thread calls `tick`, which sends heartbeats, looks for the coordinator, gives up late
  answers, retries commits, notices a lost session, and leaves the group when the user has not
  polled for max.poll.interval.ms. Any thread may call `response`.

After each call there may be requests to send (`take_requests`) and lines to log (`take_notes`).
Source: Kafka's ConsumerCoordinator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from group_coordinator.coordinator.consumer.autocommit import AutoCommit
from group_coordinator.coordinator.consumer.backoff import Backoff, Jitter
from group_coordinator.coordinator.consumer.calls import Calls, Operation
from group_coordinator.coordinator.consumer.commit import Commits, PartitionOffsets
from group_coordinator.coordinator.consumer.errors import NoOffsetForPartitionError, group_of
from group_coordinator.coordinator.consumer.events import CallAssignor, CommitDone, Event, Note
from group_coordinator.coordinator.consumer.heartbeat import Heartbeat
from group_coordinator.coordinator.consumer.lookup import CoordinatorLookup
from group_coordinator.coordinator.consumer.membership import Membership
from group_coordinator.coordinator.consumer.offset_fetch import Committed, fetch_offsets
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.queries import Queries
from group_coordinator.coordinator.consumer.rebalance import WAIT, Rebalance, Steps, Wait
from group_coordinator.coordinator.consumer.requests import Requests
from group_coordinator.coordinator.consumer.settings import ConsumerSettings
from group_coordinator.coordinator.consumer.state import (
    Generation,
    GroupMembershipOperation,
    MemberState,
)
from group_coordinator.coordinator.consumer.subscription import SubscriptionState
from group_coordinator.schemas.messages import RequestEvent, Response


class ConsumerCoordinator:
    """One consumer, of one group or of none.

    `new_request_id` makes unique ids; `jitter` returns numbers in [0, 1). `subscription` holds the
    assigned partitions with their positions; seek, pause, resume and resets are called on it.
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
        self._notes: list[Note] = []
        backoff = Backoff(settings, jitter)
        self._requests = Requests(settings, new_request_id)
        self._lookup = CoordinatorLookup(settings, self._requests, backoff, self._notes)
        self._heartbeat = Heartbeat(settings, backoff, now)
        self._membership = Membership(
            settings, self._requests, self._lookup, self._heartbeat, self._notes
        )
        self._calls = Calls(self._lookup, backoff)
        self._commits = Commits(
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
            self._notes,
        )
        self._commit_ids = 0
        # The steps that the user's thread has begun, and whether the listener is running.
        self._steps: Steps | None = None
        self._begin: Callable[[int], Steps] = self._working
        self._leaving = False
        self._last_step: Event | Wait = WAIT
        self._in_callback = False
        self._refreshing: tuple[int, Operation[Committed]] | None = None

    # --- what the user wants --------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str] | re.Pattern[str]) -> None:
        """Subscribe to a list of topics, or to those whose whole names match a pattern.

        Replaces the previous subscription; the next poll joins. Raises SubscriptionError, and
        InvalidGroupIdError without a group.
        """
        group_of(self.settings)
        if isinstance(topics, re.Pattern):
            self.subscription.subscribe_pattern(topics)
        else:
            self.subscription.subscribe([topics] if isinstance(topics, str) else topics)
        self._rebalance.subscription_changed()

    def assign(self, now: int, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions in place of those before, without joining; none: unsubscribe.

        The group takes no part in it, so no listener is called. With a group, positions begin at
        its committed offsets, and are committed automatically before they are replaced. Raises
        SubscriptionError, also while there is a subscription.
        """
        wanted = tuple(partitions)
        if not wanted:
            self.unsubscribe(now)
            return
        before = self.subscription.consumed()
        self.subscription.assign_from_user(wanted)
        # Kafka's consumer does so only if auto.commit.interval.ms is over, though no rebalance
        # commits these later.
        if before and self._auto_commit.is_enabled:
            self._commits.commit_async(now, before)

    def unsubscribe(self, now: int) -> None:
        """Give up all partitions and leave; poll until `is_subscribed` is False."""
        if self.subscription.is_subscribed:
            self._leave_by(now, self._unsubscribing)
        else:
            self.subscription.unsubscribe()

    def update_topics(self, topics: Mapping[str, int]) -> None:
        """Set the catalogue: every topic with its number of partitions.

        The member does not join before the first catalogue. A change of the member's topics, or of
        the group's if it leads, causes a rebalance.
        """
        self._rebalance.update_topics(topics)

    def close(
        self,
        now: int,
        timeout_ms: int = 30_000,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Commit if commits are automatic, give up all partitions, leave; poll until `closed`.

        The consumer is closed within the timeout, whether or not the coordinator answers.
        """
        self._in_callback = False
        closing = partial(self._closing, ends_at=now + timeout_ms, operation=operation)
        self._leave_by(now, closing)

    def commit_async(self, now: int, offsets: PartitionOffsets | None = None) -> int:
        """Commit offsets, or all positions; a CommitDone with the id returned says how it ended.

        Raises FencedInstanceIdError, InvalidGroupIdError without a group, and ValueError for an
        offset below 0.
        """
        group_of(self.settings)
        self._membership.raise_failure()
        self._commit_ids += 1
        wanted = self.subscription.consumed() if offsets is None else offsets
        self._commits.commit_async(now, wanted, self._commit_ids)
        return self._commit_ids

    def commit_sync(
        self, now: int, offsets: PartitionOffsets | None = None, timeout_ms: int | None = None
    ) -> Operation[None]:
        """Commit offsets, or all positions, trying again until default.api.timeout.ms.

        `tick` and `response` drive it, also while a listener runs. Its errors: CommitFailedError,
        RebalanceInProgressError, FencedInstanceIdError, GroupAuthorizationError,
        TopicAuthorizationError, OffsetMetadataTooLargeError, CoordinatorTimeoutError. Asynchronous
        commits made earlier end before it does: hand out `completed_commits` first. Raises
        InvalidGroupIdError without a group.
        """
        group_of(self.settings)
        self._membership.raise_failure()
        wanted = self.subscription.consumed() if offsets is None else offsets
        return self._commits.commit_sync(now, wanted, self._timeout(timeout_ms))

    def completed_commits(self) -> list[CommitDone]:
        """The asynchronous commits that have ended and that `poll` did not return."""
        done = list(self._commits.completed)
        self._commits.completed.clear()
        return done

    def committed(
        self, now: int, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> Operation[Committed]:
        """Fetch the group's committed offsets of partitions, None for one without an offset.

        `tick` and `response` drive it. Its errors: CoordinatorTimeoutError,
        GroupAuthorizationError, TopicAuthorizationError, UnknownTopicOrPartitionError. Raises
        InvalidGroupIdError without a group.
        """
        group_of(self.settings)
        timeout_ms = self._timeout(timeout_ms)
        return fetch_offsets(now, partitions, self.settings, self._queries, timeout_ms)

    def _timeout(self, timeout_ms: int | None) -> int:
        return self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms

    # --- the user's thread ----------------------------------------------------------------------

    def poll(self, now: int) -> Event | None:
        """Go on with the user's thread's steps; returns the next event, None if there is none yet.

        Call it until it returns None, and again after each answer and at `poll_deadline`. Raises
        ConsumerError for what the user must act on, and RuntimeError before `callback_done`.
        """
        if self._in_callback:
            raise RuntimeError("poll() while the listener runs: callback_done() was not called")
        if self._commits.completed:
            return self._commits.completed.popleft()
        if self.subscription.is_subscribed and not self._leaving:
            self._membership.raise_failure()
            self._heartbeat.poll(now)
            self._lookup.want()
        self.tick(now)
        failure = self._lookup.failure
        if failure is not None and not self._leaving:
            self._lookup.failure = None
            raise failure
        return self._go_on(now)

    def callback_done(self) -> None:
        """The listener has run, or raised: the rebalance may go on at the next poll."""
        self._in_callback = False

    def _go_on(self, now: int) -> Event | None:
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
            self._begin = self._working
            self._leaving = False
            return None
        except Exception:
            # The steps hold no state that is not also elsewhere: the next poll starts them anew.
            self._steps = None
            raise
        self._last_step = step
        if isinstance(step, Wait):
            return None
        self._in_callback = True
        return step

    def _working(self, now: int) -> Steps:
        while True:
            if self._rebalance.needed(now):
                now = yield from self._rebalance.run(now)
            self._refresh_positions(now)
            self._auto_commit.poll(now)
            now = yield Wait(self._auto_commit.deadline)

    def _refresh_positions(self, now: int) -> None:
        """Start where a position is not known: from the committed offset, if there is a group."""
        subscription = self.subscription
        if self._refreshing is not None:
            assignment_id, fetch = self._refreshing
            if assignment_id == subscription.assignment_id and not fetch.done:
                return
            self._refreshing = None
            if assignment_id == subscription.assignment_id:
                self._start_from(fetch.result())
        wanted = subscription.initializing
        if wanted and self.settings.group_id is None:
            self._start_from(dict.fromkeys(wanted))
        elif wanted:
            fetch = fetch_offsets(now, wanted, self.settings, self._queries)
            self._refreshing = (subscription.assignment_id, fetch)

    def _start_from(self, committed: Committed) -> None:
        without_offset = self.subscription.refresh(committed, self.settings.auto_offset_reset)
        if without_offset:
            names = ", ".join(f"{topic}-{number}" for topic, number in without_offset)
            raise NoOffsetForPartitionError(
                f"nothing is committed for {names}, and auto.offset.reset is 'none'"
            )

    # --- leaving --------------------------------------------------------------------------------

    def _leave_by(self, now: int, begin: Callable[[int], Steps]) -> None:
        """Drop the steps that the user's thread has begun; the next poll begins to leave."""
        if self._steps is not None and not isinstance(self._last_step, Wait | CallAssignor):
            # The listener has run for this event: without its effect it would run again. What
            # follows an assignor's call is not wanted any more: a join, or another event.
            with suppress(StopIteration):
                self._steps.send(now)
        self._steps = None
        self._last_step = WAIT
        self._begin = begin
        self._leaving = True

    def _unsubscribing(self, now: int) -> Steps:
        reason = "the consumer unsubscribed from all topics"
        now = yield from self._rebalance.drop(now, reason)
        self._membership.leave(now, reason)
        self.subscription.unsubscribe()
        self._rebalance.forget()
        return now

    def _closing(self, now: int, ends_at: int, operation: GroupMembershipOperation) -> Steps:
        if self._auto_commit.is_enabled:
            offsets = self.subscription.consumed()
            commit = self._commits.commit_sync(now, offsets, max(0, ends_at - now))
            while not commit.done and now < ends_at:
                now = yield Wait(ends_at)
            if commit.error is not None:
                text = f"the automatic commit at close failed: {commit.error}"
                self._notes.append(Note(now, "warning", text))
        while self._commits.pending and now < ends_at:
            now = yield Wait(ends_at)
        if self.settings.internal_leave_group_on_close and self.is_subscribed:
            reason = "the consumer is being closed"
            now = yield from self._rebalance.drop(now, reason)
            self._membership.leave(now, reason, operation)
        while self._requests.waiting and self._lookup.node is not None and now < ends_at:
            now = yield Wait(ends_at)
        self.closed = True
        return now

    # --- any thread -----------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Let the timers act that need no user; call it at `tick_deadline`."""
        if self.closed:
            return
        self._lookup.tick(now)
        self._membership.tick(now)
        self._calls.tick(now)
        # Again, for one of them may just have asked for the coordinator.
        self._lookup.tick(now)

    def response(self, now: int, response: Response) -> bool:
        """Take an answer; False if none is waited for. The driver then wakes the user's thread."""
        return not self.closed and self._requests.answer(now, response)

    def take_requests(self) -> list[RequestEvent]:
        """The requests to send now, in order; each is given out once."""
        return self._requests.take()

    def take_notes(self) -> list[Note]:
        """The lines to log; each is given out once."""
        notes = list(self._notes)
        self._notes.clear()
        return notes

    @property
    def tick_deadline(self) -> int | None:
        """When `tick` has something to do, absolute ms; None while nothing is timed."""
        if self.closed:
            return None
        sources = (self._requests, self._lookup, self._membership, self._calls)
        times = [one.deadline for one in sources]
        return min((time for time in times if time is not None), default=None)

    @property
    def poll_deadline(self) -> int | None:
        """When `poll` has something to do even without an answer, absolute ms; None for never."""
        step = self._last_step
        if self.closed or self._membership.failure is not None or not isinstance(step, Wait):
            return None
        return step.at

    # --- questions ------------------------------------------------------------------------------

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions, sorted."""
        return self.subscription.assigned

    @property
    def is_subscribed(self) -> bool:
        """Whether the group is to assign partitions."""
        return self.subscription.is_subscribed

    @property
    def unknown_topics(self) -> frozenset[str]:
        """The topics subscribed to that are not in the catalogue."""
        return self._rebalance.unknown_topics()

    @property
    def state(self) -> MemberState:
        """The member's state in the group."""
        return self._membership.state

    @property
    def generation(self) -> Generation:
        """Generation, member id and assignor: Kafka's groupMetadata()."""
        return self._membership.generation

    @property
    def is_leader(self) -> bool:
        """Whether the member leads its present generation."""
        return self._rebalance.is_leader

    @property
    def is_rejoining(self) -> bool:
        """Whether the next poll goes on with a rebalance."""
        membership = self._membership
        return self.is_subscribed and (membership.rejoin_needed or membership.joining)
