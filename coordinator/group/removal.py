"""Removal of members with expired sessions, and of member ids that were never used."""

from __future__ import annotations

from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.member import Member
from group_coordinator.coordinator.group.rebalance import complete, prepare_or_complete
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import JoinGroupResponse

_NO_JOIN = JoinGroupResponse()


def answer_removed(decision: Decision, member: Member) -> None:
    """Answer a removed member's parked requests, so that a live client joins again.

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
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_or_complete(decision, f"removing member {member_id} on heartbeat expiration")
    elif group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
        complete(decision)


def expire_pending_join(decision: Decision, member_id: str) -> None:
    """Remove a pending member id that was never used; the rebalance stops waiting for it."""
    group = decision.present
    del group.pending_joins[member_id]
    decision.note(
        "member_expired", "was given its id and never joined with it", member_id=member_id
    )
    if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
        complete(decision)
