"""Members that leave a group: by LeaveGroup, or because a session or an unused member id expired.

Source: Apache Kafka, GroupMetadataManager (classicGroupLeave, expireClassicGroupMemberHeartbeat,
expirePendingJoin); KIP-345.
"""

from __future__ import annotations

from group_coordinator.coordinator.group.classic_group import ClassicGroup, ClassicGroupMember
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.rebalance import (
    complete,
    complete_if_all_joined,
    prepare_or_complete,
)
from group_coordinator.coordinator.group.state import (
    COMPLETING_REBALANCE,
    DEAD,
    PREPARING_REBALANCE,
    STABLE,
)
from group_coordinator.schemas.apis import version_of
from group_coordinator.schemas.errors import NONE, ErrorCode
from group_coordinator.schemas.messages import (
    NO_MEMBER_ID,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeaveGroupResponseMember,
    LeavingMember,
    RequestEvent,
)

BATCH_VERSION = 3
_NO_JOIN = JoinGroupResponse()


def leave_group(decision: Decision, event: RequestEvent, body: LeaveGroupRequest) -> None:
    """Remove the named members, answer with one code for each, and rebalance the group."""
    group = decision.group
    if group is None:
        codes = [ErrorCode.UNKNOWN_MEMBER_ID for _ in body.members]
    elif group.state is DEAD:
        refuse_leave(decision, event, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    else:
        codes = [_leave(decision, group, leaving) for leaving in body.members]
    answer_leave(decision, event, body, codes)
    if group is None or NONE not in codes:
        return
    left = [m.member_id for m, c in zip(body.members, codes, strict=True) if c is NONE]
    if group.state in (STABLE, COMPLETING_REBALANCE):
        prepare_or_complete(
            decision, f"explicit `LeaveGroup` request for ({', '.join(left)}) members"
        )
    else:
        complete_if_all_joined(decision)


def refuse_leave(decision: Decision, event: RequestEvent, code: ErrorCode) -> None:
    """Answer a LeaveGroup with one error, without results for its members."""
    version = version_of(event)
    decision.answer(event, code, LeaveGroupResponse(() if version >= BATCH_VERSION else None))


def _leave(decision: Decision, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
    member_id = leaving.member_id
    instance_id = leaving.group_instance_id
    reason = f"client reason: {leaving.reason or 'not provided'}"
    if member_id == NO_MEMBER_ID:
        # An administrator removes a static member by its instance id alone.
        static_id = None if instance_id is None else group.static_members.get(instance_id)
        if static_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = static_id
    elif member_id in group.pending_joins:
        group.remove(member_id)
        return NONE
    else:
        code = group.validate_member(member_id, instance_id)
        if code is not NONE:
            return code
    member = group.remove(member_id)
    if member is not None:
        decision.note("member_left", reason, member)
        answer_removed(decision, member)
    return NONE


def answer_leave(
    decision: Decision, event: RequestEvent, body: LeaveGroupRequest, codes: list[ErrorCode]
) -> None:
    """Answer with one code for each named member."""
    version = version_of(event)
    if version < BATCH_VERSION:
        # Such a request has one member, and the top-level code is that member's.
        decision.answer(event, codes[0] if codes else NONE, LeaveGroupResponse(None))
        return
    members = tuple(
        LeaveGroupResponseMember(m.member_id, m.group_instance_id, int(code))
        for m, code in zip(body.members, codes, strict=True)
    )
    decision.answer(event, NONE, LeaveGroupResponse(members))


# --- removal --------------------------------------------------------------------------------------


def answer_removed(decision: Decision, member: ClassicGroupMember) -> None:
    """Answer a removed member's parked requests UNKNOWN_MEMBER_ID, so that its client joins again.

    Kafka answers the join and drops the sync; here every request is answered.
    """
    if member.awaiting_join is not None:
        parked, member.awaiting_join = member.awaiting_join, None
        decision.answer_parked_join(parked, ErrorCode.UNKNOWN_MEMBER_ID, _NO_JOIN)
    decision.complete_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)


def expire_session(decision: Decision, member_id: str) -> None:
    """Remove a member after its session deadline, unless it has a parked request."""
    group = decision.present
    member = group.members[member_id]
    member.session_deadline = None
    if member.has_satisfied_heartbeat:
        return
    reason = f"session of {member.session_timeout_ms} ms expired without a heartbeat"
    if member.is_new:
        reason = "its first join was not answered in time"
    group.remove(member_id)
    decision.note("member_expired", reason, member)
    answer_removed(decision, member)
    if group.state in (STABLE, COMPLETING_REBALANCE):
        prepare_or_complete(decision, f"removing member {member_id} on heartbeat expiration")
    elif group.state is PREPARING_REBALANCE and group.has_all_members_joined:
        complete(decision)


def expire_pending_join(decision: Decision, member_id: str) -> None:
    """Remove an assigned member id that no join used; the rebalance stops waiting for it."""
    group = decision.present
    del group.pending_joins[member_id]
    decision.note(
        "member_expired", "was given its id and never joined with it", member_id=member_id
    )
    if group.state is PREPARING_REBALANCE and group.has_all_members_joined:
        complete(decision)
