"""LeaveGroup, one member or many.

Source: Apache Kafka, GroupMetadataManager.classicGroupLeave; KIP-345.
"""

from __future__ import annotations

from group_coordinator.coordinator.group.group import Group
from group_coordinator.coordinator.group.rebalance import (
    complete_if_all_joined,
    prepare_or_complete,
)
from group_coordinator.coordinator.group.removal import answer_removed
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.coordinator.group.turn import Turn
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


def leave_group(turn: Turn, event: RequestEvent, body: LeaveGroupRequest) -> None:
    """Remove the members named, each with a code of its own, and rebalance what is left."""
    group = turn.group
    if group is None:
        codes = [ErrorCode.UNKNOWN_MEMBER_ID for _ in body.members]
    elif group.state is GroupState.DEAD:
        refuse_leave(turn, event, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    else:
        codes = [_leave(turn, group, leaving) for leaving in body.members]
    answer_leave(turn, event, body, codes)
    if group is None or ErrorCode.NONE not in codes:
        return
    left = [m.member_id for m, c in zip(body.members, codes, strict=True) if c is ErrorCode.NONE]
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_or_complete(turn, f"explicit `LeaveGroup` request for ({', '.join(left)}) members")
    else:
        complete_if_all_joined(turn)


def refuse_leave(turn: Turn, event: RequestEvent, code: ErrorCode) -> None:
    """Answer a LeaveGroup with an error, without looking at its members."""
    version = version_of(event)
    turn.answer(event, code, LeaveGroupResponse(() if version >= BATCH_VERSION else None))


def _leave(turn: Turn, group: Group, leaving: LeavingMember) -> ErrorCode:
    member_id = leaving.member_id
    instance_id = leaving.group_instance_id
    reason = f"client reason: {leaving.reason or 'not provided'}"
    if member_id == NO_MEMBER_ID:
        # An administrator removes a static member by its instance id, not knowing its member id.
        known = None if instance_id is None else group.static_members.get(instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known
    elif member_id in group.pending_joins:
        group.remove(member_id)
        return ErrorCode.NONE
    else:
        code = group.validate_member(member_id, instance_id)
        if code is not ErrorCode.NONE:
            return code
    member = group.remove(member_id)
    if member is not None:
        turn.note("member_left", reason, member)
        answer_removed(turn, member)
    return ErrorCode.NONE


def answer_leave(
    turn: Turn, event: RequestEvent, body: LeaveGroupRequest, codes: list[ErrorCode]
) -> None:
    """Answer with a code for each member named."""
    version = version_of(event)
    if version < BATCH_VERSION:
        # Such a request has one member, and the top-level code is that member's.
        turn.answer(event, codes[0] if codes else ErrorCode.NONE, LeaveGroupResponse(None))
        return
    members = tuple(
        LeaveGroupResponseMember(m.member_id, m.group_instance_id, int(code))
        for m, code in zip(body.members, codes, strict=True)
    )
    turn.answer(event, ErrorCode.NONE, LeaveGroupResponse(members))
