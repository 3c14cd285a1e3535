"""Removal of members whose session has ended, and of member ids that were never used."""

from __future__ import annotations

from group_coordinator.coordinator.group.member import Member
from group_coordinator.coordinator.group.rebalance import complete, prepare_or_complete
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.coordinator.group.turn import Turn
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import JoinGroupResponse

_NO_JOIN = JoinGroupResponse()


def answer_removed(turn: Turn, member: Member) -> None:
    """Answer a removed member's parked requests, so that a client still there joins anew.

    Kafka answers the join and drops the sync; here every request is answered.
    """
    if member.awaiting_join is not None:
        parked, member.awaiting_join = member.awaiting_join, None
        turn.answer_parked_join(parked, ErrorCode.UNKNOWN_MEMBER_ID, _NO_JOIN)
    turn.complete_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)


def expire_session(turn: Turn, member_id: str) -> None:
    """The session deadline passed: remove the member, unless it waits for the coordinator."""
    group = turn.present
    member = group.members[member_id]
    member.session_deadline = None
    if member.has_satisfied_heartbeat:
        return
    reason = f"session of {member.session_timeout_ms} ms expired without a heartbeat"
    if member.is_new:
        reason = "its first join was not answered in time"
    group.remove(member_id)
    turn.note("member_expired", reason, member)
    answer_removed(turn, member)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_or_complete(turn, f"removing member {member_id} on heartbeat expiration")
    elif group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
        complete(turn)


def expire_pending_join(turn: Turn, member_id: str) -> None:
    """A member id was given out and never used: the rebalance no longer waits for it."""
    group = turn.present
    del group.pending_joins[member_id]
    turn.note("member_expired", "was given its id and never joined with it", member_id=member_id)
    if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
        complete(turn)
