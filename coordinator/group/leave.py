"""LeaveGroup, for one or more members.

Source: Apache Kafka, GroupMetadataManager.classicGroupLeave; KIP-345.
"""

from __future__ import annotations

from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.group import Group
from group_coordinator.coordinator.group.rebalance import (
    complete_if_all_joined,
    prepare_or_complete,
)
from group_coordinator.coordinator.group.removal import answer_removed
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.apis import version_of
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    NO_MEMBER_ID,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeaveGroupResponseMember,
    LeavingMember,
    RequestEvent,
)

BATCH_VERSION = 3


def leave_group(decision: Decision, event: RequestEvent, body: LeaveGroupRequest) -> None:
    """Remove the named members, with one code each, and rebalance the group."""
    group = decision.group
    if group is None:
        codes = [ErrorCode.UNKNOWN_MEMBER_ID for _ in body.members]
    elif group.state is GroupState.DEAD:
        refuse_leave(decision, event, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    else:
        codes = [_leave(decision, group, leaving) for leaving in body.members]
    answer_leave(decision, event, body, codes)
    if group is None or ErrorCode.NONE not in codes:
        return
    left = [m.member_id for m, c in zip(body.members, codes, strict=True) if c is ErrorCode.NONE]
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_or_complete(
            decision, f"explicit `LeaveGroup` request for ({', '.join(left)}) members"
        )
    else:
        complete_if_all_joined(decision)


def refuse_leave(decision: Decision, event: RequestEvent, code: ErrorCode) -> None:
    """Answer a LeaveGroup with one error, without results for its members."""
    version = version_of(event)
    decision.answer(event, code, LeaveGroupResponse(() if version >= BATCH_VERSION else None))


def _leave(decision: Decision, group: Group, leaving: LeavingMember) -> ErrorCode:
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
        return ErrorCode.NONE
    else:
        code = group.validate_member(member_id, instance_id)
        if code is not ErrorCode.NONE:
            return code
    member = group.remove(member_id)
    if member is not None:
        decision.note("member_left", reason, member)
        answer_removed(decision, member)
    return ErrorCode.NONE


def answer_leave(
    decision: Decision, event: RequestEvent, body: LeaveGroupRequest, codes: list[ErrorCode]
) -> None:
    """Answer with one code for each named member."""
    version = version_of(event)
    if version < BATCH_VERSION:
        # Such a request has one member, and the top-level code is that member's.
        decision.answer(event, codes[0] if codes else ErrorCode.NONE, LeaveGroupResponse(None))
        return
    members = tuple(
        LeaveGroupResponseMember(m.member_id, m.group_instance_id, int(code))
        for m, code in zip(body.members, codes, strict=True)
    )
    decision.answer(event, ErrorCode.NONE, LeaveGroupResponse(members))
