"""SyncGroup.

Source: Apache Kafka, GroupMetadataManager.classicGroupSync; KIP-559 for the protocol checks.
"""

from __future__ import annotations

from group_coordinator.coordinator.group.classic_group import (
    ClassicGroup,
    ClassicGroupMember,
    ParkedRequest,
)
from group_coordinator.coordinator.group.decision import Decision, shape_sync
from group_coordinator.coordinator.group.rebalance import (
    prepare_or_complete,
    propagate_assignments,
    received_sync,
    reset_assignments,
)
from group_coordinator.coordinator.group.record_helpers import group_value
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
    RequestEvent,
    SyncGroupRequest,
    SyncGroupResponse,
)


def sync_group(decision: Decision, event: RequestEvent, body: SyncGroupRequest) -> None:
    """Decide a SyncGroup: answer it, or park it until the leader's assignment is stored."""
    version = version_of(event)
    code = _validate(decision.group, body)
    if code is not NONE:
        decision.answer(event, code, shape_sync(SyncGroupResponse(), version))
        return
    group = decision.present
    member = group.members[body.member_id]
    if group.state is COMPLETING_REBALANCE:
        _park(decision, member, ParkedRequest(event.request_id, version))
        received_sync(group, member.member_id)
        if member.member_id == group.leader_id:
            _store_assignment(decision, body)
        return
    received_sync(group, member.member_id)
    answer = SyncGroupResponse(group.protocol_type, group.protocol_name, member.assignment)
    decision.answer(event, NONE, shape_sync(answer, version))


def _validate(group: ClassicGroup | None, body: SyncGroupRequest) -> ErrorCode:
    if group is None or group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = group.validate_member(body.member_id, body.group_instance_id)
    if code is not NONE:
        return code
    if body.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(body.protocol_type, group.protocol_type) or _differs(
        body.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return NONE


def _differs(requested: str | None, selected: str | None) -> bool:
    return requested is not None and selected is not None and requested != selected


def _park(decision: Decision, member: ClassicGroupMember, request: ParkedRequest) -> None:
    replaced = member.awaiting_sync
    if replaced is not None and replaced.request_id != request.request_id:
        # Kafka never answers the older request; here every request gets exactly one answer.
        decision.answer_parked_sync(replaced, ErrorCode.REBALANCE_IN_PROGRESS)
    member.awaiting_sync = request


def _store_assignment(decision: Decision, body: SyncGroupRequest) -> None:
    """Store the group with the leader's assignment, then answer the parked syncs."""
    group = decision.present
    assignments = {item.member_id: item.assignment for item in body.assignments or ()}
    record = decision.group_record(group_value(group, assignments), "leader synced")
    error = decision.append(record)
    if error is NONE:
        group.recorded = True
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        propagate_assignments(decision, NONE)
        decision.transition(STABLE, "leader synced")
    else:
        reset_assignments(decision, error)
        prepare_or_complete(
            decision,
            f"Error {error.name} when storing group assignment during SyncGroup "
            f"(member: {body.member_id})",
        )
