"""OffsetCommit, synchronous, asynchronous and automatic, and its effect on the membership.

Source: Kafka's ConsumerCoordinator (commitOffsetsSync, commitOffsetsAsync,
OffsetCommitResponseHandler, maybeAutoCommitOffsetsAsync). Two differences from Kafka:

* ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID for a commit of an older generation does not reset the
  member's newer generation. Kafka's consumer resets it in state Stable, and loses partitions that
  it owns.
* A member's commit fails if the member leaves before the coordinator is found. Kafka's consumer
  sends it without a generation; an empty group accepts it, and its offsets may go back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial

from msgspec import Struct, field

from group_coordinator.coordinator.consumer.calls import Operation, PendingCall, PendingCalls
from group_coordinator.coordinator.consumer.consumer_errors import (
    ON_OFFSET_COMMIT,
    CommitFailedError,
    ConsumerError,
    Reaction,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    disconnected_error,
    error_name,
    fatal_error,
    retriable_error,
)
from group_coordinator.coordinator.consumer.consumer_settings import ConsumerSettings
from group_coordinator.coordinator.consumer.coordinator_requests import (
    CoordinatorLookup,
    InFlightRequests,
)
from group_coordinator.coordinator.consumer.events import CommitDone
from group_coordinator.coordinator.consumer.member_state import Generation, MemberState
from group_coordinator.coordinator.consumer.membership import Membership
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.subscription_state import (
    OffsetAndMetadata,
    SubscriptionState,
)
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    Response,
)

PartitionOffsets = Mapping[TopicPartition, OffsetAndMetadata]
_API = "offset_commit"


class PendingCommit:
    """A commit that has not ended; `commit_id` None: an automatic or a synchronous commit.

    `of_member`: whether the consumer was subscribed when the commit was made. Such a commit is sent
    only with the generation of a Stable member; another commit is sent without a generation.
    """

    __slots__ = ("asynchronous", "call", "commit_id", "of_member", "offsets", "operation")

    def __init__(
        self, offsets: PartitionOffsets, of_member: bool, asynchronous: bool, commit_id: int | None
    ) -> None:
        self.offsets = dict(offsets)
        self.of_member = of_member
        self.asynchronous = asynchronous
        self.commit_id = commit_id
        self.operation: Operation[None] = Operation()
        self.call: PendingCall


class OffsetCommits(Struct, eq=False):
    """The commits that have not ended, and the results of asynchronous ones in `completed`.

    `pending` is the number of asynchronous commits that have not ended.
    """

    _settings: ConsumerSettings
    _requests: InFlightRequests
    _lookup: CoordinatorLookup
    _membership: Membership
    _subscription: SubscriptionState
    _calls: PendingCalls
    pending: int = 0
    completed: deque[CommitDone] = field(default_factory=deque)
    _flushes: list[PendingCommit] = []

    def commit_async(
        self, now: int, offsets: PartitionOffsets, commit_id: int | None = None
    ) -> Operation[None]:
        """Start a commit with one attempt; return its operation.

        The result is also added to `completed`, unless the commit has neither offsets nor an id.
        Raises ValueError for a negative offset.
        """
        commit = self._start(now, offsets, asynchronous=True, commit_id=commit_id, deadline=None)
        return commit.operation

    def commit_sync(self, now: int, offsets: PartitionOffsets, timeout_ms: int) -> Operation[None]:
        """Start a commit that retries retriable failures for `timeout_ms`; return its operation.

        Without offsets the operation succeeds when no asynchronous commit is pending. Raises
        ValueError for a negative offset.
        """
        commit = self._start(
            now, offsets, asynchronous=False, commit_id=None, deadline=now + timeout_ms
        )
        return commit.operation

    def _start(
        self,
        now: int,
        offsets: PartitionOffsets,
        asynchronous: bool,
        commit_id: int | None,
        deadline: int | None,
    ) -> PendingCommit:
        of_member = self._subscription.is_subscribed
        commit = PendingCommit(offsets, of_member, asynchronous, commit_id)
        for partition, offset in commit.offsets.items():
            if offset.offset < 0:
                raise ValueError(
                    f"invalid offset {offset.offset} of {partition.topic}-{partition.partition}: "
                    "a committed offset must not be negative"
                )
        commit.call = PendingCall(
            f"the commit for group {self._settings.group_id!r}",
            partial(self._attempt, commit),
            partial(self._fail, commit),
            deadline,
            retries=not asynchronous,
            retry_at=now,
        )
        if asynchronous:
            self.pending += 1
        if commit.offsets:
            self._calls.start(now, commit.call)
        elif asynchronous or not self.pending:
            self._succeed(commit)
        else:
            commit.call.retry_at = None
            self._flushes.append(commit)
            self._calls.start(now, commit.call)
        return commit

    # --- sending --------------------------------------------------------------------------------

    def _attempt(self, commit: PendingCommit, now: int) -> None:
        membership = self._membership
        generation, instance_id = membership.generation, self._settings.group_instance_id
        if not commit.of_member:
            generation, instance_id = Generation(), None
        elif membership.state is not MemberState.STABLE:
            self._calls.failed(now, commit.call, self._not_a_member())
            return
        body = OffsetCommitRequest(
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=instance_id,
            topics=_topics(commit.offsets),
        )
        self._requests.send(now, _API, body, partial(self._on_answer, commit, generation))

    def _not_a_member(self) -> ConsumerError:
        group = self._settings.group_id
        if self._membership.is_rebalancing:
            return RebalanceInProgressError(
                f"group {group!r} is rebalancing: poll() until it is over, then commit again"
            )
        return CommitFailedError(
            f"the member is not in group {group!r}: it was removed, or polled later than "
            f"max.poll.interval.ms ({self._settings.max_poll_interval_ms})"
        )

    # --- answers --------------------------------------------------------------------------------

    def _on_answer(
        self, commit: PendingCommit, sent: Generation, now: int, response: Response | None
    ) -> None:
        if response is None:
            self._calls.failed(now, commit.call, disconnected_error(_API))
            return
        code = _deciding_code(response)
        if code == ErrorCode.NONE:
            self._calls.end(commit.call)
            self._succeed(commit)
            return
        error = self._error(now, code, sent, response.error_message)
        self._calls.failed(now, commit.call, error)
        if ON_OFFSET_COMMIT.get(code) is Reaction.FIND_COORDINATOR:
            self._lookup.mark_unknown(now, f"{_API} answered {error_name(code)}")

    def _error(self, now: int, code: int, sent: Generation, message: str | None) -> ConsumerError:
        membership = self._membership
        current = sent == membership.generation
        reaction = ON_OFFSET_COMMIT.get(code)
        if reaction in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
            return retriable_error(_API, code)
        if reaction is Reaction.REJOIN:
            membership.request_rejoin(
                now, "offset commit failed since group is already rebalancing"
            )
            return RebalanceInProgressError(
                f"group {self._settings.group_id!r} is rebalancing: poll() until it is over, then "
                "commit again",
                code,
            )
        if reaction in (Reaction.RESET_GENERATION, Reaction.RESET_MEMBER):
            if sent == Generation():
                return CommitFailedError(
                    f"group {self._settings.group_id!r} has members, and only they may commit: "
                    f"this consumer is not a member ({error_name(code)})",
                    code,
                )
            if not current:
                return self._of_older_generation(code)
            membership.reset_on_error(now, _API, code)
            return self._commit_failed(code)
        if code == ErrorCode.FENCED_INSTANCE_ID and not current:
            return self._of_older_generation(code)
        error = fatal_error(_API, code, self._settings, message)
        if code == ErrorCode.FENCED_INSTANCE_ID:
            membership.fence(now, error)
        return error

    def _of_older_generation(self, code: int) -> ConsumerError:
        if self._membership.is_rebalancing:
            return RebalanceInProgressError(
                f"group {self._settings.group_id!r}: the commit is of an older generation: "
                "poll() until the rebalance is over, then commit what is still owned",
                code,
            )
        return self._commit_failed(code)

    def _commit_failed(self, code: int) -> ConsumerError:
        return CommitFailedError(
            f"group {self._settings.group_id!r} has rebalanced and may have given the partitions "
            f"to another member ({error_name(code)}): poll() more often than max.poll.interval.ms "
            f"({self._settings.max_poll_interval_ms}), and heartbeat within session.timeout.ms "
            f"({self._settings.session_timeout_ms})",
            code,
        )

    # --- ends -----------------------------------------------------------------------------------

    def _succeed(self, commit: PendingCommit) -> None:
        commit.operation.succeed(None)
        self._complete(commit, None)

    def _fail(self, commit: PendingCommit, _now: int, error: ConsumerError) -> None:
        if commit.asynchronous and error.retriable:
            error = RetriableCommitFailedError(str(error), error.code)
        commit.operation.fail(error)
        self._complete(commit, error)

    def _complete(self, commit: PendingCommit, error: ConsumerError | None) -> None:
        if not commit.asynchronous:
            return
        self.pending -= 1
        if commit.offsets or commit.commit_id is not None:
            self.completed.append(CommitDone(commit.commit_id, commit.offsets, error))
        if not self.pending:
            for flush in self._flushes:
                self._calls.end(flush.call)
                flush.operation.succeed(None)
            self._flushes.clear()


def _topics(offsets: PartitionOffsets) -> tuple[OffsetCommitTopic, ...]:
    topics: dict[str, list[OffsetCommitPartition]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        partition = OffsetCommitPartition(
            number, offset.offset, offset.leader_epoch, None, offset.metadata
        )
        topics.setdefault(topic, []).append(partition)
    return tuple(OffsetCommitTopic(name, tuple(ps)) for name, ps in topics.items())


def _deciding_code(response: Response) -> int:
    """Return the code that decides the commit, 0 (NONE) if all partitions were committed.

    The first error code decides. TOPIC_AUTHORIZATION_FAILED decides only if there is no other
    error.
    """
    body = response.offset_commit
    topics = () if body is None else body.topics
    codes = [p.error_code for topic in topics for p in topic.partitions] or [response.error_code]
    errors = [code for code in codes if code != ErrorCode.NONE]
    not_authorized = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return next((code for code in errors if code != not_authorized), errors[0] if errors else 0)


class AutoCommit:
    """The timer of automatic commits; without effect if enable.auto.commit is false."""

    def __init__(
        self,
        settings: ConsumerSettings,
        commits: OffsetCommits,
        subscription: SubscriptionState,
        now: int,
    ) -> None:
        self._settings = settings
        self._commits = commits
        self._subscription = subscription
        self._running: Operation[None] | None = None
        self._next_at = now + settings.auto_commit_interval_ms

    @property
    def is_enabled(self) -> bool:
        """Whether positions are committed automatically."""
        return self._settings.enable_auto_commit

    @property
    def deadline(self) -> int | None:
        """The time (absolute ms) at which `poll` is due; None if automatic commits are off."""
        return self._next_at if self.is_enabled else None

    def restart(self, now: int) -> None:
        """Restart the interval at `now` (absolute ms)."""
        self._next_at = now + self._settings.auto_commit_interval_ms

    def poll(self, now: int) -> None:
        """Commit if the interval is over.

        After a retriable failure the next commit is due after retry.backoff.ms instead.
        """
        if not self.is_enabled:
            return
        running = self._running
        if running is not None and running.done:
            self._running = None
            if running.error is not None and running.error.retriable:
                self._next_at = now + self._settings.retry_backoff_ms
        if now >= self._next_at:
            self.restart(now)
            self._running = self.commit(now)

    def commit(self, now: int) -> Operation[None]:
        """Start an asynchronous commit of every known position; return its operation."""
        return self._commits.commit_async(now, self._subscription.consumed())
