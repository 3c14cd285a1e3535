"""The rebalance: from the first join to a new generation.

prepare -> (joins are parked) -> complete -> CompletingRebalance, or Empty without members.
Source: Apache Kafka, GroupMetadataManager (prepareRebalance, completeClassicGroupJoin,
tryCompleteInitialRebalanceElseSchedule, expirePendingSync); KIP-134 for the initial delay.
"""

from __future__ import annotations

from group_coordinator.coordinator.group.classic_group import (
    ClassicGroup,
    ClassicGroupMember,
    DelayedJoin,
)
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.record_helpers import group_value
from group_coordinator.coordinator.group.state import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    GroupState,
)
from group_coordinator.schemas.errors import NONE, ErrorCode
from group_coordinator.schemas.messages import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
)


def prepare_or_complete(decision: Decision, reason: str) -> None:
    """Begin a rebalance; during a join phase, end that phase if all members have joined."""
    if decision.present.can_rebalance:
        prepare(decision, reason)
    else:
        complete_if_all_joined(decision)


def prepare(decision: Decision, reason: str) -> None:
    """Begin a rebalance: answer parked syncs REBALANCE_IN_PROGRESS and wait for joins."""
    group = decision.present
    if group.state is COMPLETING_REBALANCE:
        reset_assignments(decision, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_syncs.clear()
    group.sync_deadline = None
    initial = group.state is EMPTY
    if initial:
        delay = decision.config.group_initial_rebalance_delay_ms
        remaining = max(group.rebalance_timeout_ms - delay, 0)
        group.delayed_join = DelayedJoin(decision.now + delay, True, delay, remaining)
    decision.transition(PREPARING_REBALANCE, reason)
    if initial and group.delayed_join is not None and group.delayed_join.delay_ms == 0:
        # Kafka schedules this timer at zero delay too, and fires it before the next request.
        fire_delayed_join(decision)
    elif not initial:
        _complete_or_wait(decision)


def complete_if_all_joined(decision: Decision) -> None:
    """Complete the running rebalance if all members joined, except during the initial delay."""
    group = decision.present
    if (
        group.state is PREPARING_REBALANCE
        and group.previous_state is not EMPTY
        and group.has_all_members_joined
    ):
        complete(decision)


def _complete_or_wait(decision: Decision) -> None:
    group = decision.present
    if group.has_all_members_joined:
        complete(decision)
    else:
        group.delayed_join = DelayedJoin(decision.now + group.rebalance_timeout_ms)


def fire_delayed_join(decision: Decision) -> None:
    """Handle the delayed join's deadline: complete the rebalance, or extend the initial delay.

    The initial delay is extended if a member joined during it and time remains.
    """
    group = decision.present
    timer = group.delayed_join
    if timer is not None and timer.initial and group.new_member_added and timer.remaining_ms:
        group.new_member_added = False
        delay = min(decision.config.group_initial_rebalance_delay_ms, timer.remaining_ms)
        remaining = max(timer.remaining_ms - timer.delay_ms, 0)
        group.delayed_join = DelayedJoin(decision.now + delay, True, delay, remaining)
    else:
        complete(decision)


def complete(decision: Decision) -> None:
    """End the join phase: remove members that did not rejoin, begin the generation, answer joins.

    Static members are not removed: their sessions decide.
    """
    group = decision.present
    group.delayed_join = None
    late = [m for m in group.members.values() if m.awaiting_join is None and not m.is_static]
    for member in late:
        group.remove(member.member_id)
        decision.note("member_expired", "did not rejoin within the rebalance timeout", member)
    if not group.elect_joined_leader() and group.members:
        # Only static members are left and none rejoined: wait until their sessions end. A delay of
        # 0 would be due again at once, in an endless loop, because `now` is fixed in a batch.
        group.delayed_join = DelayedJoin(decision.now + max(group.rebalance_timeout_ms, 1))
        return
    before = group.state
    group.begin_generation(decision.now)
    if group.state is EMPTY:
        _store_empty(decision, before)
    else:
        _answer_joins(decision, before)


def _store_empty(decision: Decision, before: GroupState) -> None:
    group = decision.present
    reason = "group emptied: no members are left"
    for event in reversed(decision.events):
        if event.event in ("member_left", "member_expired"):
            reason = f"group emptied: member {event.member_id}: {event.reason}"
            break
    decision.note_transition(before, reason)
    # A failed append is harmless: a coordinator that loads the last stored generation sees its
    # members time out.
    if decision.append(decision.group_record(group_value(group), reason)) is NONE:
        group.recorded = True


def _answer_joins(decision: Decision, before: GroupState) -> None:
    group = decision.present
    generation = group.generation_id
    decision.note_transition(before, f"generation {generation} with {len(group.members)} members")
    leader_id = group.leader_id
    if leader_id is not None and leader_id != group.announced_leader_id:
        group.announced_leader_id = leader_id
        decision.note("leader_elected", f"leads generation {generation}", group.members[leader_id])
    for member in group.members.values():
        decision.complete_join(member, NONE, current_generation(group, member))
        start_session(decision, member)
        member.is_new = False
        group.pending_syncs.append(member.member_id)
    group.sync_deadline = decision.now + group.rebalance_timeout_ms


def current_generation(
    group: ClassicGroup, member: ClassicGroupMember, skip_assignment: bool = False
) -> JoinGroupResponse:
    """Return the answer to a join in the current generation; the leader's has the member list."""
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


def _member_list(group: ClassicGroup) -> tuple[JoinGroupResponseMember, ...]:
    return tuple(
        JoinGroupResponseMember(
            member.member_id, member.group_instance_id, member.metadata(group.protocol_name)
        )
        for member in group.members.values()
    )


def start_session(
    decision: Decision, member: ClassicGroupMember, timeout_ms: int | None = None
) -> None:
    """Start the member's session; `timeout_ms` replaces the member's session timeout."""
    timeout = member.session_timeout_ms if timeout_ms is None else timeout_ms
    member.session_deadline = decision.now + timeout


def propagate_assignments(decision: Decision, code: ErrorCode) -> None:
    """Answer every parked sync with the member's assignment, or with an error."""
    group = decision.present
    ok = code is NONE
    for member in group.members.values():
        body = SyncGroupResponse(
            protocol_type=group.protocol_type if ok else None,
            protocol_name=group.protocol_name if ok else None,
            assignment=member.assignment,
        )
        if decision.complete_sync(member, code, body):
            start_session(decision, member)


def reset_assignments(decision: Decision, code: ErrorCode) -> None:
    """Clear the assignments and answer the parked syncs with an error."""
    for member in decision.present.members.values():
        member.assignment = b""
    propagate_assignments(decision, code)


def expire_pending_syncs(decision: Decision) -> None:
    """Remove the members that never sent their sync (KAFKA-12890), and rebalance."""
    group = decision.present
    group.sync_deadline = None
    if group.state not in (COMPLETING_REBALANCE, STABLE):
        return
    if not group.pending_syncs:
        return
    evicted = list(group.pending_syncs)
    for member_id in evicted:
        member = group.remove(member_id)
        if member is not None:
            decision.note("member_expired", "did not sync within the rebalance timeout", member)
    names = ", ".join(evicted)
    prepare(decision, f"removing {names} on pending sync request expiration")


def received_sync(group: ClassicGroup, member_id: str) -> None:
    """Record that the member sent its sync; stop the pending-sync timer after the last one."""
    if member_id in group.pending_syncs:
        group.pending_syncs.remove(member_id)
    if not group.pending_syncs:
        group.sync_deadline = None
