"""The rebalance in the user's thread: automatic commit, listener, join, listener.

The steps are generators in the order of the rebalance, which the user's `poll` resumes. A `yield`
hands the user's thread an event or a Wait, and returns the time of the next poll. Meanwhile
listeners and assignors run, and timers and answers are handled.

Eager members give up all partitions before they join. Cooperative members keep their partitions and
join. Then they give up only the partitions that the leader took away, and join again, so that other
members can get these. If the generation was lost, its partitions are lost as well, because another
member may own them already.

Source: Kafka's AbstractCoordinator (joinGroupIfNeeded) and ConsumerCoordinator (onJoinPrepare,
onJoinComplete).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial
from typing import TypeAlias

from msgspec import Struct

from group_coordinator.coordinator.consumer import leader
from group_coordinator.coordinator.consumer.assignors import (
    ConsumerPartitionAssignor,
    RebalanceProtocol,
)
from group_coordinator.coordinator.consumer.backoff import ExponentialBackoff
from group_coordinator.coordinator.consumer.calls import Operation, Queries
from group_coordinator.coordinator.consumer.consumer_errors import (
    ConsumerError,
    InconsistentGroupProtocolError,
    error_name,
    required_group_id,
)
from group_coordinator.coordinator.consumer.consumer_settings import (
    ConsumerSettings,
    rebalance_protocol,
)
from group_coordinator.coordinator.consumer.coordinator_requests import CoordinatorLookup
from group_coordinator.coordinator.consumer.events import (
    AssignPartitions,
    CallAssignor,
    Event,
    LogLine,
    LosePartitions,
    RevokePartitions,
)
from group_coordinator.coordinator.consumer.member_state import (
    ConsumerGroupMetadata,
    Generation,
    MemberState,
)
from group_coordinator.coordinator.consumer.membership import JoinSucceeded, Membership
from group_coordinator.coordinator.consumer.offset_commits import AutoCommit
from group_coordinator.coordinator.consumer.protocol import (
    ProtocolError,
    Subscription,
    TopicPartition,
    decode_assignment,
    encode_subscription,
)
from group_coordinator.coordinator.consumer.subscription_state import SubscriptionState
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    DescribeGroupsRequest,
    JoinGroupProtocol,
    JoinGroupResponse,
)


class Wait(Struct, frozen=True):
    """A pause of the user's thread until an answer arrives, or until `at` (absolute ms)."""

    at: int | None = None


# Yields events and waits, is resumed with the time (absolute ms), and returns the time.
Steps: TypeAlias = "Generator[Event | Wait, int, int]"
WAIT = Wait()


class Rebalance:
    """The decision when to join, and the steps before and after a join."""

    def __init__(
        self,
        settings: ConsumerSettings,
        subscription: SubscriptionState,
        backoff: ExponentialBackoff,
        membership: Membership,
        lookup: CoordinatorLookup,
        auto_commit: AutoCommit,
        queries: Queries,
        log_lines: list[LogLine],
    ) -> None:
        self._settings = settings
        self._subscription = subscription
        self._backoff = backoff
        self._membership = membership
        self._lookup = lookup
        self._auto_commit = auto_commit
        self._queries = queries
        self._log_lines = log_lines
        assignors = settings.new_assignors()
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._protocol = rebalance_protocol(assignors)
        # The catalogue of topics with their partition counts; None before the first one.
        self._catalogue: dict[str, int] | None = None
        # The partition counts of the watched topics, now and when this member assigned as leader.
        self._watched: dict[str, int] = {}
        self._assigned_for: dict[str, int] | None = None
        # The query for the members' assignments, by a leader that did not assign in its generation.
        self._assigned_query: tuple[Generation, Operation[dict[str, int]]] | None = None
        self._joined_topics: frozenset[str] | None = None
        self._failures = 0
        self._retry_at = 0
        self.is_leader = False

    # --- topics ---------------------------------------------------------------------------------

    def update_topics(self, topics: Mapping[str, int]) -> None:
        """Set the catalogue: each topic with its number of partitions."""
        self._catalogue = dict(topics)
        self.subscription_changed()

    def subscription_changed(self) -> None:
        """Match the pattern and the watched topics again after a change of the subscription."""
        if self._catalogue is not None:
            self._subscription.match(self._catalogue)
        self._update_watched()

    def unknown_topics(self) -> frozenset[str]:
        """Return the subscribed topics that the catalogue lacks; none before the first one."""
        if self._catalogue is None:
            return frozenset()
        return self._subscription.topics - self._catalogue.keys()

    def reset(self) -> None:
        """Clear the state of the last join, because the user has unsubscribed."""
        self._joined_topics = self._assigned_for = None
        self.is_leader = False
        self._update_watched()

    def _update_watched(self) -> None:
        catalogue = self._catalogue or {}
        watched = self._subscription.watched_topics
        self._watched = {topic: catalogue[topic] for topic in watched if topic in catalogue}

    def needs_join(self, now: int) -> bool:
        """Whether to begin or to continue a join.

        Requests one if the subscription changed, or the partition counts that a leader assigned.
        """
        membership, subscription = self._membership, self._subscription
        if not subscription.is_subscribed:
            return False
        self._take_assigned_counts(now)
        if self._assigned_for is not None and self._assigned_for != self._watched:
            self._request_rejoin(now, "cached metadata has changed")
        elif self._joined_topics is not None and self._joined_topics != subscription.topics:
            self._request_rejoin(now, "subscription has changed")
        return membership.rejoin_needed or membership.joining

    def _request_rejoin(self, now: int, reason: str) -> None:
        if not self._membership.rejoin_needed:
            self._membership.request_rejoin(now, reason)

    # --- the user's thread ----------------------------------------------------------------------

    def run(self, now: int) -> Steps:
        """Join until the member has an assignment; return the time (ms) at the end.

        Raises ConsumerError for an error that the user must handle. The membership and the
        subscription keep the progress, so another `run` continues after an error.
        """
        membership = self._membership
        offered: tuple[frozenset[str], list[bytes | None]] | None = None
        while self.needs_join(now):
            if membership.outcome is not None:
                now = yield from self._take_outcome(now)
            elif self._lookup.node is None or self._catalogue is None:
                # Without a catalogue no pattern can be matched, and no leader can assign.
                self._lookup.request_lookup()
                now = yield WAIT
            elif membership.elected is not None:
                now = yield from self._assign_as_leader(now, membership.elected)
            elif membership.joining:
                now = yield WAIT
            elif membership.needs_prepare:
                # Set before the listener runs: if it raises, it must not run a second time.
                membership.needs_prepare = False
                now = yield from self._on_join_prepare(now)
            elif now < self._retry_at:
                now = yield Wait(self._retry_at)
            elif offered is None:
                # The loop checks `needs_join` again, because the state may change during the call.
                topics = self._subscription.topics
                call = CallAssignor(partial(self._user_data, topics))
                now = yield call
                offered = None if call.result is None else (topics, call.result)
            else:
                membership.join(now, self._protocols(*offered))
                offered = None
        return now

    def _take_outcome(self, now: int) -> Steps:
        membership = self._membership
        outcome = membership.outcome
        membership.end_attempt()
        if isinstance(outcome, JoinSucceeded):
            # In another state, the answer to a heartbeat has reset the generation since then, and
            # has requested a join.
            if membership.state is MemberState.STABLE:
                membership.needs_prepare = True
                self._failures = 0
                now = yield from self._on_join_complete(now, outcome.assignment)
        elif outcome is not None:
            error = outcome.error
            if error.code != ErrorCode.MEMBER_ID_REQUIRED:
                cause = type(error).__name__ if error.code is None else error_name(error.code)
                membership.request_rejoin(now, f"rebalance failed due to {cause}", str(error))
            if not outcome.without_backoff:
                if not error.retriable:
                    raise error
                self._retry_at = now + self._backoff(self._failures)
                self._failures += 1
        return now

    # --- before the join ------------------------------------------------------------------------

    def _on_join_prepare(self, now: int) -> Steps:
        membership, subscription = self._membership, self._subscription
        if self._auto_commit.is_enabled:
            now = yield from self._commit_before(now)
        reason = membership.rejoin_reason
        owned = subscription.assigned
        if membership.generation.is_lost:
            if owned:
                now = yield LosePartitions(owned, reason)
                subscription.assign(())
        elif self._protocol is RebalanceProtocol.EAGER:
            now = yield RevokePartitions(owned, reason)
            subscription.assign(())
        else:
            kept = tuple(p for p in owned if p.topic in subscription.topics)
            if kept != owned:
                revoked = tuple(p for p in owned if p not in set(kept))
                now = yield RevokePartitions(revoked, reason)
                subscription.assign(kept)
        self.is_leader = False
        subscription.group_topics = frozenset()
        return now

    def _commit_before(self, now: int) -> Steps:
        """Commit the positions, with retries for at most the rebalance timeout.

        The other members wait no longer than this timeout for the member to join.
        """
        ends_at = now + self._settings.max_poll_interval_ms
        if self._protocol is RebalanceProtocol.EAGER:
            # The commit in flight does not cover rows that are handed out later, so the next owner
            # would hand them out again.
            self._subscription.mark_pending_revocation()
        attempts = 0
        while True:
            commit = self._auto_commit.commit(now)
            while not commit.done and now < ends_at:
                now = yield Wait(ends_at)
            if commit.error is None or not commit.error.retriable or now >= ends_at:
                return now
            again_at = min(now + self._backoff(attempts), ends_at)
            attempts += 1
            while now < again_at:
                now = yield Wait(again_at)

    def _user_data(self, topics: frozenset[str]) -> list[bytes | None]:
        return [assignor.user_data(sorted(topics)) for assignor in self._assignors.values()]

    def _protocols(
        self, topics: frozenset[str], user_data: list[bytes | None]
    ) -> tuple[JoinGroupProtocol, ...]:
        self._joined_topics = topics
        owned = self._subscription.assigned
        generation_id = self._membership.generation.generation_id
        return tuple(
            JoinGroupProtocol(
                name,
                encode_subscription(
                    Subscription(
                        topics=tuple(sorted(topics)),
                        user_data=data,
                        owned_partitions=owned,
                        generation_id=generation_id,
                        rack_id=self._settings.client_rack or None,
                    )
                ),
            )
            for name, data in zip(self._assignors, user_data, strict=True)
        )

    # --- during the join: the leader ------------------------------------------------------------

    def _assign_as_leader(self, now: int, join: JoinGroupResponse) -> Steps:
        """Assign as the leader, and sync; from now on watch the topics of all members."""
        membership = self._membership
        try:
            assignor = self._assignor(join.protocol_name)
            subscriptions = leader.read_subscriptions(join)
        except (ConsumerError, ProtocolError) as error:
            membership.fail(
                error if isinstance(error, ConsumerError) else ConsumerError(str(error))
            )
            return now
        self._subscription.group_topics = leader.subscribed_topics(subscriptions)
        self._update_watched()
        self.is_leader = True
        self._assigned_for = self._watched
        if join.skip_assignment:
            # A static leader has rejoined, and the group keeps its assignment (KIP-814). Partitions
            # may have been added while the leader was away. To detect this, `needs_join` compares
            # the partition counts of the members' assignments with the catalogue.
            what = f"describing group {self._settings.group_id!r}"
            body, read = DescribeGroupsRequest(), leader.assigned_counts
            query = self._queries.send(now, "describe_groups", body, read, what)
            self._assigned_query = (membership.generation, query)
            membership.sync(now, ())
            return now
        call = CallAssignor(partial(leader.assign, assignor, self._watched, subscriptions))
        now = yield call
        if call.result is not None:
            membership.sync(now, call.result)
            return now
        # `run` of the call has already raised the error in the user's thread.
        membership.end_attempt()
        cause = type(call.error).__name__
        membership.request_rejoin(now, f"rebalance failed due to {cause}", str(call.error))
        return now

    def _take_assigned_counts(self, now: int) -> None:
        """Take the numbers of assigned partitions from the members' assignments, once fetched.

        The result is ignored if the generation has changed since the query.
        """
        if self._assigned_query is None or not self._assigned_query[1].done:
            return
        generation, query = self._assigned_query
        self._assigned_query = None
        if query.error is not None:
            text = f"partitions that were added to topics may be left unassigned: {query.error}"
            self._log_lines.append(LogLine(now, "warning", text))
        elif generation == self._membership.generation:
            self._assigned_for = query.result()

    def _assignor(self, name: str | None) -> ConsumerPartitionAssignor:
        assignor = self._assignors.get(name or "")
        if assignor is None:
            offered = ", ".join(self._assignors)
            raise InconsistentGroupProtocolError(
                f"the coordinator chose the assignor {name!r}, which is not in "
                f"partition.assignment.strategy ({offered})"
            )
        return assignor

    # --- after the join -------------------------------------------------------------------------

    def _on_join_complete(self, now: int, encoded: bytes) -> Steps:
        membership, subscription = self._membership, self._subscription
        generation = membership.generation
        if not self.is_leader:
            self._assigned_for = None
        assignor = self._assignor(generation.protocol_name)
        try:
            assignment = decode_assignment(encoded)
        except ProtocolError as error:
            raise ConsumerError(
                f"the leader of group {self._settings.group_id!r} sent this member no valid "
                f"assignment: {error}"
            ) from error
        assigned = assignment.partitions
        if not subscription.covers(assigned):
            membership.request_rejoin(
                now, "received assignment does not match the current subscription"
            )
            return now
        owned = set(subscription.assigned)
        if self._protocol is RebalanceProtocol.COOPERATIVE:
            revoked = tuple(sorted(owned.difference(assigned)))
            if revoked:
                reason = "need to revoke partitions and re-join"
                now = yield RevokePartitions(revoked, reason)
                membership.request_rejoin(now, reason, f"{reason}: {revoked}")
        self._add_matched_topics(assigned)
        metadata = ConsumerGroupMetadata(
            required_group_id(self._settings),
            generation.generation_id,
            generation.member_id,
            self._settings.group_instance_id,
        )
        now = yield CallAssignor(partial(assignor.on_assignment, assignment, metadata))
        self._auto_commit.restart(now)
        subscription.assign(assigned)
        added = tuple(sorted(set(assigned).difference(owned)))
        return (yield AssignPartitions(added, generation.generation_id))

    def _add_matched_topics(self, assigned: tuple[TopicPartition, ...]) -> None:
        """Subscribe to assigned topics that were not known when this member joined.

        They match the pattern, and only the leader's newer catalogue had them then.
        """
        if self._subscription.pattern is None or self._joined_topics is None:
            return
        added = {partition.topic for partition in assigned} - self._joined_topics
        if added:
            self._subscription.topics |= added
            self._joined_topics |= added
            self._update_watched()

    # --- giving up ------------------------------------------------------------------------------

    def give_up_partitions(self, now: int, reason: str) -> Steps:
        """Revoke all partitions before the member leaves, or declare them lost.

        They are lost if the generation is lost or a rebalance is in progress.
        """
        owned = self._subscription.assigned
        if owned:
            membership = self._membership
            if membership.generation.is_lost or membership.is_rebalancing:
                now = yield LosePartitions(owned, reason)
            else:
                now = yield RevokePartitions(owned, reason)
            self._subscription.assign(())
        return now
