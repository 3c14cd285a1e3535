"""JoinGroup.

Source: Apache Kafka, GroupMetadataManager.classicGroupJoin; KIP-394 (two-step join), KIP-345
(static members), KIP-389 (group.max.size), KIP-814 (skip_assignment). The checks that need no group
(group id, session timeout, ownership) are in `coordinator.py`, and run first.
"""

from __future__ import annotations

from group_coordinator.coordinator.config import NEW_MEMBER_JOIN_TIMEOUT_MS
from group_coordinator.coordinator.group.classic_group import (
    ClassicGroup,
    ClassicGroupMember,
    ParkedRequest,
)
from group_coordinator.coordinator.group.decision import Decision, shape_join
from group_coordinator.coordinator.group.rebalance import (
    complete_if_all_joined,
    current_generation,
    prepare,
    prepare_or_complete,
    start_session,
)
from group_coordinator.coordinator.group.record_helpers import group_value, new_group_value
from group_coordinator.coordinator.group.state import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from group_coordinator.schemas.apis import version_of
from group_coordinator.schemas.errors import NONE, ErrorCode
from group_coordinator.schemas.messages import (
    NO_MEMBER_ID,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    RequestEvent,
)
from group_coordinator.schemas.records import CoordinatorRecord

KNOWN_MEMBER_ID_VERSION = 4
SKIP_ASSIGNMENT_VERSION = 9


class JoinCall:
    """One JoinGroup request while it is being decided."""

    __slots__ = ("body", "decision", "event", "version")

    def __init__(self, decision: Decision, event: RequestEvent, body: JoinGroupRequest) -> None:
        self.decision = decision
        self.event = event
        self.body = body
        self.version = version_of(event)

    def answer(self, code: ErrorCode, body: JoinGroupResponse, message: str | None = None) -> None:
        """Answer without parking the join."""
        self.decision.answer(self.event, code, shape_join(body, self.version), message)

    def refuse(
        self, code: ErrorCode, member_id: str = NO_MEMBER_ID, message: str | None = None
    ) -> None:
        """Answer with an error, without parking the join."""
        self.answer(code, JoinGroupResponse(member_id=member_id), message)

    @property
    def parked(self) -> ParkedRequest:
        """The part of the request that is kept while it is parked."""
        return ParkedRequest(self.event.request_id, self.version)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The member's rebalance timeout (ms); in version 0 it is the session timeout."""
        timeout = self.body.rebalance_timeout_ms
        return self.body.session_timeout_ms if timeout is None else timeout

    @property
    def client_reason(self) -> str:
        """The client's reason for joining (KIP-800)."""
        return f"client reason: {self.body.reason or 'not provided'}"


def join_group(decision: Decision, event: RequestEvent, body: JoinGroupRequest) -> None:
    """Decide a JoinGroup: answer it, or park it until the rebalance ends."""
    call = JoinCall(decision, event, body)
    new_member = body.member_id == NO_MEMBER_ID
    if decision.group is None:
        if not new_member:
            call.refuse(ErrorCode.UNKNOWN_MEMBER_ID, body.member_id)
            return
        error = _create_group(decision)
        if error is not NONE:
            call.refuse(error)
            return
    if not _accepts(decision, body.member_id):
        _drop_over_capacity(decision, body.member_id)
        call.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif new_member:
        _join_new_member(call)
    else:
        _join_existing_member(call)


def _create_group(decision: Decision) -> ErrorCode:
    group = ClassicGroup(decision.group_id, state_timestamp=decision.now, recorded=True)
    error = decision.append(decision.group_record(new_group_value(group), "group created"))
    if error is NONE:
        decision.group = group
    return error


def _accepts(decision: Decision, member_id: str) -> bool:
    """Whether the group has room for the member under group.max.size (KIP-389)."""
    group = decision.present
    limit = decision.config.group_max_size
    if group.state in (EMPTY, DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is PREPARING_REBALANCE:
        # Only members with a parked join count: those that rejoin last are refused.
        is_parked = member is not None and member.awaiting_join is not None
        return is_parked or group.num_awaiting_join < limit
    return member is not None or len(group.members) < limit


def _drop_over_capacity(decision: Decision, member_id: str) -> None:
    member = decision.present.remove(member_id)
    if member is not None:
        reason = f"the group is over group.max.size ({decision.config.group_max_size})"
        decision.note("member_left", reason, member)


# --- new members ----------------------------------------------------------------------------------


def _join_new_member(call: JoinCall) -> None:
    decision, body = call.decision, call.body
    group = decision.present
    if group.state is DEAD:
        call.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    elif not group.supports_protocols(body.protocol_type, body.protocols):
        call.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif body.group_instance_id is not None:
        new_id = f"{body.group_instance_id}-{decision.new_id(call.event.request_id)}"
        known_id = group.static_members.get(body.group_instance_id)
        if known_id is None:
            _add_member(call, new_id)
        else:
            _replace_static_member(call, known_id, new_id)
    else:
        new_id = f"{_client_id(call.event)}-{decision.new_id(call.event.request_id)}"
        if new_id in group.members:
            # A repeated request, older than the deduplication window: it created this member.
            _rejoin(call, group.members[new_id])
        elif call.version >= KNOWN_MEMBER_ID_VERSION:
            group.pending_joins[new_id] = decision.now + body.session_timeout_ms
            call.refuse(ErrorCode.MEMBER_ID_REQUIRED, new_id)
        else:
            _add_member(call, new_id)


def _client_id(event: RequestEvent) -> str:
    # Java concatenates a null client id as "null".
    return "null" if event.client_id is None else event.client_id


def _add_member(call: JoinCall, member_id: str) -> None:
    decision, body, event = call.decision, call.body, call.event
    group = decision.present
    member = ClassicGroupMember(
        member_id=member_id,
        group_instance_id=body.group_instance_id,
        client_id=event.client_id or "",
        client_host=event.client_host or "",
        rebalance_timeout_ms=call.rebalance_timeout_ms,
        session_timeout_ms=body.session_timeout_ms,
        protocols=body.protocols,
        is_new=True,
        awaiting_join=call.parked,
    )
    if group.in_initial_rebalance:
        group.new_member_added = True
    if not group.members:
        group.protocol_type = body.protocol_type
    group.add(member)
    # The member cannot heartbeat before its join is answered. This longer timeout removes members
    # of clients that have disappeared.
    start_session(decision, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    decision.note("member_joined", call.client_reason, member)
    prepare_or_complete(
        decision,
        f"Adding new member {member_id} with group instance id {body.group_instance_id}; "
        f"{call.client_reason}",
    )


# --- members that rejoin --------------------------------------------------------------------------


def _join_existing_member(call: JoinCall) -> None:
    decision, body = call.decision, call.body
    group = decision.present
    member_id = body.member_id
    if group.state is DEAD:
        call.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
    elif not group.supports_protocols(body.protocol_type, body.protocols):
        call.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    elif member_id in group.pending_joins:
        if body.group_instance_id is None:
            _add_member(call, member_id)
        else:
            call.refuse(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                message=f"member {member_id} was given its id as a dynamic member and cannot "
                f"join as static member {body.group_instance_id}",
            )
    else:
        code = group.validate_member(member_id, body.group_instance_id)
        if code is NONE:
            _rejoin(call, group.members[member_id])
        else:
            call.refuse(code, member_id)


def _rejoin(call: JoinCall, member: ClassicGroupMember) -> None:
    group = call.decision.present
    unchanged = member.protocols == call.body.protocols
    if group.state is PREPARING_REBALANCE:
        _update_member(call, member, f"Member {member.member_id} is joining group")
    elif group.state is STABLE and member.member_id == group.leader_id:
        # A leader rejoins to compute a new assignment, for example when partitions were added.
        _update_member(call, member, f"Leader {member.member_id} re-joining group")
    elif group.state in (COMPLETING_REBALANCE, STABLE) and unchanged:
        # The answer to its join may have been lost: repeat it, because the generation is the same.
        call.answer(NONE, current_generation(group, member))
    elif group.state is EMPTY:
        call.refuse(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)
    else:
        _update_member(call, member, f"Updating metadata for member {member.member_id}")


def _update_member(call: JoinCall, member: ClassicGroupMember, what: str) -> None:
    decision = call.decision
    state = decision.present.state.value
    _apply_update(call, member)
    prepare_or_complete(decision, f"{what} during {state}; {call.client_reason}")


def _apply_update(call: JoinCall, member: ClassicGroupMember) -> None:
    decision, body = call.decision, call.body
    decision.present.set_protocols(member, body.protocols)
    member.rebalance_timeout_ms = call.rebalance_timeout_ms
    member.session_timeout_ms = body.session_timeout_ms
    replaced = decision.present.park_join(member, call.parked)
    if replaced is not None and replaced.request_id != call.event.request_id:
        # Kafka never answers the older request; here every request gets exactly one answer.
        decision.answer_parked_join(
            replaced,
            ErrorCode.REBALANCE_IN_PROGRESS,
            JoinGroupResponse(member_id=member.member_id),
        )


# --- static members that rejoin without their member id ------------------------------------------


def _replace_static_member(call: JoinCall, old_id: str, new_id: str) -> None:
    decision = call.decision
    group = decision.present
    if group.state in (EMPTY, DEAD):
        raise RuntimeError(
            f"group {group.group_id!r} is {group.state.value} but has the static member "
            f"{call.body.group_instance_id!r}"
        )
    leader_before = group.leader_id
    events_before = len(decision.events)
    member = group.members[old_id]
    before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    _fence(decision, member, new_id)
    group.rename_static(old_id, new_id)
    member.is_new = False
    start_session(decision, member)
    _apply_update(call, member)
    if group.state is STABLE:
        if group.select_protocol() != group.protocol_name:
            prepare_or_complete(
                decision,
                f"Group's selectedProtocol will change because static member {new_id} with "
                f"instance id {member.group_instance_id} joined with change of protocol; "
                f"{call.client_reason}",
            )
            return
        record = decision.group_record(group_value(group), _replaced(new_id, old_id))
        error = decision.append(record)
        group.unpark_join(member)
        if error is NONE:
            answer_replacement(call, group, member, leader_before)
        else:
            _undo_replacement(group, member, old_id, before)
            del decision.events[events_before:]
            call.answer(error, _as_follower(group, leader_before, NO_MEMBER_ID))
    elif group.state is COMPLETING_REBALANCE:
        # The leader may have received the old id: its assignment would lack the new id.
        prepare(
            decision,
            f"Updating metadata for static member {new_id} with instance id "
            f"{member.group_instance_id}; {call.client_reason}",
        )
    else:
        complete_if_all_joined(decision)


def _fence(decision: Decision, member: ClassicGroupMember, new_id: str) -> None:
    decision.note("member_fenced", f"replaced by {new_id}", member)
    decision.complete_join(
        member, ErrorCode.FENCED_INSTANCE_ID, JoinGroupResponse(member_id=member.member_id)
    )
    decision.complete_sync(member, ErrorCode.FENCED_INSTANCE_ID)


def _replaced(new_id: str, old_id: str) -> str:
    return f"static member {new_id} replaced {old_id}"


def replaced_id(record: CoordinatorRecord, new_id: str) -> str | None:
    """Return the member id that `new_id` replaced, None if the record is of something else."""
    reason, opening = record.reason or "", _replaced(new_id, "")
    return reason.removeprefix(opening) if reason.startswith(opening) else None


def answer_replacement(
    call: JoinCall, group: ClassicGroup, member: ClassicGroupMember, leader_before: str | None
) -> None:
    """Answer a static member that rejoined a Stable group under a new member id."""
    if call.version >= SKIP_ASSIGNMENT_VERSION:
        is_leader = member.member_id == group.leader_id
        call.answer(NONE, current_generation(group, member, skip_assignment=is_leader))
        return
    # Before version 9 the answer names the leader's old id, so that the leader does not assign.
    call.answer(NONE, _as_follower(group, leader_before, member.member_id))


def _as_follower(group: ClassicGroup, leader: str | None, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader or "",
        member_id=member_id,
    )


def _undo_replacement(
    group: ClassicGroup,
    member: ClassicGroupMember,
    old_id: str,
    before: tuple[tuple[JoinGroupProtocol, ...], int, int],
) -> None:
    protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
    group.set_protocols(member, protocols)
    group.rename_static(member.member_id, old_id)
