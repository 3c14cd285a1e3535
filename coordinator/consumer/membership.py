"""Membership of the group: join, sync, heartbeat, leave, and the effect of each answer.

This is the part of Kafka's AbstractCoordinator that runs no user code, so any thread may drive it.
`member_rebalance` decides when to join, and does the work before and after a join.
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from group_coordinator.coordinator.consumer.consumer_errors import (
    ON_HEARTBEAT,
    ON_JOIN,
    ON_SYNC,
    ConsumerError,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    Reaction,
    RetriableError,
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
from group_coordinator.coordinator.consumer.events import LogLine
from group_coordinator.coordinator.consumer.heartbeat_timers import Heartbeat
from group_coordinator.coordinator.consumer.member_state import (
    HEARTBEATING,
    REBALANCING,
    Generation,
    GroupMembershipOperation,
    MemberState,
)
from group_coordinator.coordinator.consumer.protocol import PROTOCOL_TYPE
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    NO_MEMBER_ID,
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    Response,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)

# The broker's limit on a reason's length (JoinGroupRequest.maybeTruncateReason).
MAX_REASON_LENGTH = 255


_RESETS = (Reaction.RESET_GENERATION, Reaction.RESET_MEMBER)
_AFTER_BACKOFF = (Reaction.RETRY, Reaction.FIND_COORDINATOR)


class JoinSucceeded(Struct, frozen=True):
    """A successful attempt to join; `assignment` is the member's encoded assignment."""

    assignment: bytes


class JoinFailed(Struct, frozen=True):
    """A failed attempt to join; `without_backoff`: whether the next attempt follows at once."""

    error: ConsumerError
    without_backoff: bool = False


class Membership(Struct, eq=False):
    """The membership of one consumer: its state, its generation, and its attempt to join.

    `rejoin_needed`: whether the next poll must join, for `rejoin_reason`. `needs_prepare`: whether
    the owned partitions must be committed, revoked or declared lost before the next join.
    `joining`: whether an attempt to join is in progress. `outcome` is its result until `Rebalance`
    takes it. `elected` is the answer to JoinGroup that made the member the leader, until `sync`.
    `failure` is an error of a background request, which the user's thread raises.
    """

    _settings: ConsumerSettings
    _requests: InFlightRequests
    _lookup: CoordinatorLookup
    _heartbeat: Heartbeat
    _log_lines: list[LogLine]
    state: MemberState = MemberState.UNJOINED
    generation: Generation = Generation()
    rejoin_needed: bool = True
    rejoin_reason: str = ""
    needs_prepare: bool = True
    joining: bool = False
    elected: JoinGroupResponse | None = None
    outcome: JoinSucceeded | JoinFailed | None = None
    failure: ConsumerError | None = None
    _attempt: int = 0

    def __post_init__(self) -> None:
        self._lookup.on_found.append(self._heartbeat.reset_session)

    # --- state ----------------------------------------------------------------------------------

    @property
    def is_rebalancing(self) -> bool:
        """Whether the member has sent JoinGroup and not yet received its assignment."""
        return self.state in REBALANCING

    def request_rejoin(self, now: int, reason: str, detail: str = "") -> None:
        """Make the next poll join again; JoinGroup carries the reason (KIP-800).

        The log gets `detail`, if given, in place of the reason.
        """
        self._log(now, "info", f"joins again: {detail or reason}")
        self.rejoin_reason = reason
        self.rejoin_needed = True

    def reset(self, now: int, reason: str, keep_member_id: bool = False) -> None:
        """Reset the generation, and the member id unless it is kept; rejoin at the next poll."""
        self.state = MemberState.UNJOINED
        member_id = self.generation.member_id if keep_member_id else NO_MEMBER_ID
        self.generation = Generation(member_id=member_id)
        self.needs_prepare = True
        self.request_rejoin(now, reason)

    def reset_on_error(self, now: int, api: str, code: int) -> None:
        """Reset after UNKNOWN_MEMBER_ID, or after ILLEGAL_GENERATION, which keeps the member id."""
        reason = f"encountered {error_name(code)} from {api} response"
        self.reset(now, reason, keep_member_id=code == ErrorCode.ILLEGAL_GENERATION)

    def end_attempt(self) -> None:
        """End the present attempt to join; later answers to it are ignored."""
        self._attempt += 1
        self.joining = False
        self.elected = None
        self.outcome = None

    # --- join -----------------------------------------------------------------------------------

    def join(self, now: int, protocols: tuple[JoinGroupProtocol, ...]) -> None:
        """Send JoinGroup; `outcome` will be the result of it and of the SyncGroup after it.

        If the member becomes the leader, `elected` is set first, and the caller must call `sync`.
        """
        self.end_attempt()
        self.joining = True
        self.state = MemberState.PREPARING_REBALANCE
        settings = self._settings
        body = JoinGroupRequest(
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=self.generation.member_id,
            group_instance_id=settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=self.rejoin_reason[:MAX_REASON_LENGTH],
        )
        handler = partial(self._on_join, self._attempt, self.generation)
        self._requests.send(now, "join_group", body, handler, settings.join_timeout_ms)

    def _on_join(self, attempt: int, sent: Generation, now: int, response: Response | None) -> None:
        if attempt != self._attempt:
            return
        body = None if response is None else response.join_group
        if response is None or response.error_code != ErrorCode.NONE or body is None:
            self._join_failed("join_group", ON_JOIN, sent, now, response)
        elif body.protocol_type not in (None, PROTOCOL_TYPE):
            self.fail(self._inconsistent(f"its protocol type is {body.protocol_type!r}"))
        elif self.state is not MemberState.PREPARING_REBALANCE:
            self.fail(RetriableError("the member left the group while it joined"))
        else:
            self._on_joined(now, body)

    def _on_joined(self, now: int, body: JoinGroupResponse) -> None:
        self.state = MemberState.COMPLETING_REBALANCE
        self._heartbeat.reset_timeouts(now)
        self.generation = Generation(body.generation_id, body.member_id, body.protocol_name)
        if body.leader == body.member_id:
            self.elected = body
        else:
            self.sync(now, ())

    def sync(self, now: int, assignments: tuple[SyncGroupAssignment, ...]) -> None:
        """Send SyncGroup; a leader that assigned passes the `assignments` of all members."""
        self.elected = None
        if self.state is not MemberState.COMPLETING_REBALANCE:
            self.fail(ConsumerError("the generation was lost while the leader assigned"), True)
            return
        generation = self.generation
        request = SyncGroupRequest(
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=generation.protocol_name,
            assignments=assignments,
        )
        handler = partial(self._on_sync, self._attempt, generation)
        self._requests.send(now, "sync_group", request, handler)

    def _on_sync(self, attempt: int, sent: Generation, now: int, response: Response | None) -> None:
        if attempt != self._attempt:
            return
        body = None if response is None else response.sync_group
        if response is None or response.error_code != ErrorCode.NONE or body is None:
            self._join_failed("sync_group", ON_SYNC, sent, now, response)
        elif body.protocol_type not in (None, PROTOCOL_TYPE):
            self.fail(self._inconsistent(f"its protocol type is {body.protocol_type!r}"))
        elif self.state is not MemberState.COMPLETING_REBALANCE or self.generation != sent:
            # The answer to a heartbeat has reset the generation in the meantime.
            self.fail(ConsumerError("the generation was lost while the member synced"), True)
        elif body.protocol_name not in (None, sent.protocol_name):
            self.fail(
                self._inconsistent(
                    f"it was synced with {body.protocol_name!r}, and joined with "
                    f"{sent.protocol_name!r}"
                )
            )
        else:
            self._on_synced(body)

    def _on_synced(self, body: SyncGroupResponse) -> None:
        self.state = MemberState.STABLE
        self.rejoin_reason = ""
        self.rejoin_needed = False
        self.outcome = JoinSucceeded(body.assignment)

    def _join_failed(
        self,
        api: str,
        table: dict[int, Reaction],
        sent: Generation,
        now: int,
        response: Response | None,
    ) -> None:
        if response is None:
            self.fail(disconnected_error(api))
            return
        code = response.error_code
        reaction = table.get(code, Reaction.FATAL)
        if reaction is Reaction.FATAL:
            error = fatal_error(api, code, self._settings, response.error_message)
            if code == ErrorCode.FENCED_INSTANCE_ID:
                self.fence(now, error)
            self.fail(error)
            return
        if reaction is Reaction.TAKE_MEMBER_ID and response.join_group is not None:
            self.generation = Generation(member_id=response.join_group.member_id)
            self.request_rejoin(now, "need to re-join with the given member-id")
        elif reaction in _RESETS and self.generation == sent:
            self.reset_on_error(now, api, code)
        self.fail(retriable_error(api, code), without_backoff=reaction not in _AFTER_BACKOFF)
        if reaction is Reaction.FIND_COORDINATOR:
            self._lookup.mark_unknown(now, f"{api} answered {error_name(code)}")

    def fail(self, error: ConsumerError, without_backoff: bool = False) -> None:
        """End the present attempt to join with an error."""
        self.outcome = JoinFailed(error, without_backoff)

    def _inconsistent(self, what: str) -> ConsumerError:
        return InconsistentGroupProtocolError(
            f"group {self._settings.group_id!r} does not match this consumer: {what}",
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        )

    # --- heartbeat ------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Check the timers and heartbeat or leave, as Kafka's heartbeat thread does."""
        if self.state not in HEARTBEATING:
            return
        heartbeat = self._heartbeat
        if self._lookup.node is None:
            self._lookup.request_lookup()
        elif heartbeat.session_expired(now):
            self._lookup.mark_unknown(now, "no heartbeat was answered for session.timeout.ms")
            self._lookup.request_lookup()
        elif heartbeat.poll_expired(now):
            self._log(
                now,
                "warning",
                "leaves: poll() was not called for longer than max.poll.interval.ms "
                f"({self._settings.max_poll_interval_ms})",
            )
            self.leave(now, "consumer poll timeout has expired.")
        elif heartbeat.is_due(now):
            heartbeat.sent(now)
            sent = self.generation
            body = HeartbeatRequest(
                sent.generation_id, sent.member_id, self._settings.group_instance_id
            )
            self._requests.send(now, "heartbeat", body, partial(self._on_heartbeat, sent))

    @property
    def deadline(self) -> int | None:
        """The time (absolute ms) at which `tick` is due; None if no timer runs."""
        if self.state in HEARTBEATING and self._lookup.node is not None:
            return self._heartbeat.deadline
        return None

    def _on_heartbeat(self, sent: Generation, now: int, response: Response | None) -> None:
        code = None if response is None else response.error_code
        if code == ErrorCode.NONE:
            self._heartbeat.received(now)
            return
        reaction = None if code is None else ON_HEARTBEAT.get(code)
        if response is None or code is None or reaction is None:
            self._heartbeat.failed(now)
            if code is not None:
                self._log(now, "warning", f"heartbeat answered {error_name(code)}")
        elif reaction is Reaction.FIND_COORDINATOR:
            self._heartbeat.failed(now)
            self._lookup.mark_unknown(now, f"heartbeat answered {error_name(code)}")
        elif reaction is Reaction.REJOIN:
            # The coordinator knows the member and waits for its join.
            self._heartbeat.received(now)
            if self.state is MemberState.STABLE and not self.rejoin_needed:
                self.request_rejoin(now, "group is already rebalancing")
        elif code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self._heartbeat.failed(now)
            # A fenced member stays fenced, whatever the answers to its other heartbeats are.
            if not isinstance(self.failure, FencedInstanceIdError):
                self.failure = fatal_error(
                    "heartbeat", code, self._settings, response.error_message
                )
        elif self.generation != sent:
            self._heartbeat.received(now)
        else:
            self._heartbeat.failed(now)
            if code != ErrorCode.FENCED_INSTANCE_ID:
                self.reset_on_error(now, "heartbeat", code)
            else:
                self.fence(
                    now, fatal_error("heartbeat", code, self._settings, response.error_message)
                )

    def fence(self, now: int, error: ConsumerError) -> None:
        """Fence the member, because another consumer has its group.instance.id.

        `raise_failure` raises the error from now on.
        """
        self.reset(now, "the group.instance.id was taken over")
        self.failure = error

    def raise_failure(self) -> None:
        """Raise `failure`, if there is one. FencedInstanceIdError is raised by every call."""
        failure = self.failure
        if failure is not None:
            if not isinstance(failure, FencedInstanceIdError):
                self.failure = None
            raise failure

    # --- leave ----------------------------------------------------------------------------------

    def leave(
        self,
        now: int,
        reason: str,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Leave the group, and reset the membership.

        LeaveGroup is sent once, without retries, if the coordinator may know the member. A static
        member sends it only with LEAVE_GROUP: otherwise its restart needs no rebalance.
        """
        static = self._settings.group_instance_id is not None
        leaves = operation is GroupMembershipOperation.LEAVE_GROUP or (
            operation is GroupMembershipOperation.DEFAULT and not static
        )
        member_id = self.generation.member_id
        is_known = self._lookup.node is not None and member_id != NO_MEMBER_ID
        if leaves and is_known and self.state is not MemberState.UNJOINED:
            leaving = LeavingMember(
                member_id, self._settings.group_instance_id, reason[:MAX_REASON_LENGTH]
            )
            body = LeaveGroupRequest((leaving,))
            self._requests.send(now, "leave_group", body, self._on_leave)
        self.end_attempt()
        self.reset(now, "consumer pro-actively leaving the group")

    def _on_leave(self, now: int, response: Response | None) -> None:
        codes = []
        if response is not None:
            members = () if response.leave_group is None else response.leave_group.members or ()
            codes = [response.error_code, *(member.error_code for member in members)]
        failed = [error_name(code) for code in codes if code != ErrorCode.NONE]
        if failed:
            self._log(now, "error", f"leave_group answered {failed[0]}")

    def _log(self, now: int, level: str, text: str) -> None:
        name = self.generation.member_id or "a new member"
        text = f"{name} of group {self._settings.group_id!r} {text}"
        self._log_lines.append(LogLine(now, level, text))
