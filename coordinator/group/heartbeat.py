"""Heartbeat. Source: Apache Kafka, GroupMetadataManager.classicGroupHeartbeat."""

from __future__ import annotations

from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.state import DEAD, EMPTY, PREPARING_REBALANCE
from group_coordinator.schemas.errors import NONE, ErrorCode
from group_coordinator.schemas.messages import HeartbeatRequest, HeartbeatResponse, RequestEvent

_RESPONSE = HeartbeatResponse()


def heartbeat(decision: Decision, event: RequestEvent, body: HeartbeatRequest) -> None:
    """Answer a heartbeat; in the current generation it restarts the member's session."""
    decision.answer(event, _decide(decision.group, body, decision.now), _RESPONSE)


def _decide(group: ClassicGroup | None, body: HeartbeatRequest, now: int) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = group.validate_member(body.member_id, body.group_instance_id)
    if code is not NONE:
        return code
    if body.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member = group.members[body.member_id]
    member.session_deadline = now + member.session_timeout_ms
    if group.state is PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    # Members may heartbeat as soon as their join is answered, so CompletingRebalance is NONE too.
    return NONE
