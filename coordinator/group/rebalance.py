"""The rebalance: from the first join to a new generation.

prepare -> (joins park) -> complete -> CompletingRebalance, or Empty when nobody is left.
Source: Apache Kafka, GroupMetadataManager (prepareRebalance, completeClassicGroupJoin,
tryCompleteInitialRebalanceElseSchedule, expirePendingSync); KIP-134 for the initial delay.
"""

from __future__ import annotations

from group_coordinator.coordinator.group.group import Group, JoinTimer
from group_coordinator.coordinator.group.log import group_value
from group_coordinator.coordinator.group.member import Member
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.coordinator.group.turn import Turn
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
)


def prepare_or_complete(turn: Turn, reason: str) -> None:
    """Begin a rebalance if the state allows one, else complete the running one if all joined."""
    if turn.present.can_rebalance:
        prepare(turn, reason)
    else:
        complete_if_all_joined(turn)


def prepare(turn: Turn, reason: str) -> None:
    """Begin a rebalance: answer parked syncs REBALANCE_IN_PROGRESS and wait for joins."""
    group = turn.present
    if group.state is GroupState.COMPLETING_REBALANCE:
        reset_assignments(turn, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_syncs.clear()
    group.sync_deadline = None
    initial = group.state is GroupState.EMPTY
    if initial:
        delay = turn.config.group_initial_rebalance_delay_ms
        remaining = max(group.rebalance_timeout_ms - delay, 0)
        group.join_timer = JoinTimer(turn.now + delay, True, delay, remaining)
    turn.transition(GroupState.PREPARING_REBALANCE, reason)
    if initial and group.join_timer is not None and group.join_timer.delay_ms == 0:
        # Kafka schedules this timer at zero delay too, and fires it before the next request.
        fire_delayed_join(turn)
    elif not initial:
        _complete_or_wait(turn)


def complete_if_all_joined(turn: Turn) -> None:
    """Complete the running rebalance if all members joined; the initial one waits for its delay."""
    group = turn.present
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.has_all_members_joined
    ):
        complete(turn)


def _complete_or_wait(turn: Turn) -> None:
    group = turn.present
    if group.has_all_members_joined:
        complete(turn)
    else:
        group.join_timer = JoinTimer(turn.now + group.rebalance_timeout_ms)


def fire_delayed_join(turn: Turn) -> None:
    """The delayed join is due: extend an initial delay in which a member came, else complete."""
    group = turn.present
    timer = group.join_timer
    if timer is not None and timer.initial and group.new_member_added and timer.remaining_ms:
        group.new_member_added = False
        delay = min(turn.config.group_initial_rebalance_delay_ms, timer.remaining_ms)
        remaining = max(timer.remaining_ms - timer.delay_ms, 0)
        group.join_timer = JoinTimer(turn.now + delay, True, delay, remaining)
    else:
        complete(turn)


def complete(turn: Turn) -> None:
    """End the join phase: remove who did not rejoin, begin the generation, answer the joins."""
    group = turn.present
    group.join_timer = None
    late = [m for m in group.members.values() if m.awaiting_join is None and not m.is_static]
    for member in late:
        group.remove(member.member_id)
        turn.note("member_expired", "did not rejoin within the rebalance timeout", member)
    if not group.elect_joined_leader() and group.members:
        # Only static members are left and none rejoined: wait for their sessions to end. A delay
        # of 0 would make the timer due again at once, without end, as `now` is fixed in a batch.
        group.join_timer = JoinTimer(turn.now + max(group.rebalance_timeout_ms, 1))
        return
    before = group.state
    group.begin_generation(turn.now)
    if group.state is GroupState.EMPTY:
        _store_empty(turn, before)
    else:
        _answer_joins(turn, before)


def _store_empty(turn: Turn, before: GroupState) -> None:
    group = turn.present
    reason = "group emptied: no members are left"
    for event in reversed(turn.events):
        if event.event in ("member_left", "member_expired"):
            reason = f"group emptied: member {event.member_id}: {event.reason}"
            break
    turn.note_transition(before, reason)
    # A failed append does no harm: whoever loads the last stored generation sees it time out.
    if turn.append(turn.group_record(group_value(group), reason)) is ErrorCode.NONE:
        group.recorded = True


def _answer_joins(turn: Turn, before: GroupState) -> None:
    group = turn.present
    generation = group.generation_id
    turn.note_transition(before, f"generation {generation} with {len(group.members)} members")
    leader_id = group.leader_id
    if leader_id is not None and leader_id != group.announced_leader_id:
        group.announced_leader_id = leader_id
        turn.note("leader_elected", f"leads generation {generation}", group.members[leader_id])
    for member in group.members.values():
        turn.complete_join(member, ErrorCode.NONE, current_generation(group, member))
        start_session(turn, member)
        member.is_new = False
        group.pending_syncs.append(member.member_id)
    group.sync_deadline = turn.now + group.rebalance_timeout_ms


def current_generation(
    group: Group, member: Member, skip_assignment: bool = False
) -> JoinGroupResponse:
    """The answer to a join in the present generation; only the leader gets the member list."""
    is_leader = member.member_id == group.leader_id
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=_member_list(group) if is_leader else (),
    )


def _member_list(group: Group) -> tuple[JoinGroupResponseMember, ...]:
    return tuple(
        JoinGroupResponseMember(
            member.member_id, member.group_instance_id, member.metadata(group.protocol_name)
        )
        for member in group.members.values()
    )


def start_session(turn: Turn, member: Member, timeout_ms: int | None = None) -> None:
    """Start the member's session, with its own timeout unless another is given (ms)."""
    timeout = member.session_timeout_ms if timeout_ms is None else timeout_ms
    member.session_deadline = turn.now + timeout


def propagate_assignments(turn: Turn, code: ErrorCode) -> None:
    """Answer every parked sync: with the member's assignment, or with an error."""
    group = turn.present
    ok = code is ErrorCode.NONE
    for member in group.members.values():
        body = SyncGroupResponse(
            protocol_type=group.protocol_type if ok else None,
            protocol_name=group.protocol_name if ok else None,
            assignment=member.assignment,
        )
        if turn.complete_sync(member, code, body):
            start_session(turn, member)


def reset_assignments(turn: Turn, code: ErrorCode) -> None:
    """Take the assignments back and answer the parked syncs with an error."""
    for member in turn.present.members.values():
        member.assignment = b""
    propagate_assignments(turn, code)


def expire_pending_syncs(turn: Turn) -> None:
    """Evict the members that never sent their sync (KAFKA-12890), and rebalance the rest."""
    group = turn.present
    group.sync_deadline = None
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return
    if not group.pending_syncs:
        return
    evicted = list(group.pending_syncs)
    for member_id in evicted:
        member = group.remove(member_id)
        if member is not None:
            turn.note("member_expired", "did not sync within the rebalance timeout", member)
    names = ", ".join(evicted)
    prepare(turn, f"removing {names} on pending sync request expiration")


def received_sync(group: Group, member_id: str) -> None:
    """The member sent its sync; when all have, the timer of pending syncs stops."""
    if member_id in group.pending_syncs:
        group.pending_syncs.remove(member_id)
    if not group.pending_syncs:
        group.sync_deadline = None
