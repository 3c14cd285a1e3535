"""Heartbeat, and the session that it renews."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from tests.context import GROUP_ID, INITIAL_DELAY_MS, SESSION_MS, Call, Context

LONG_MS = 10_000


def completing(ctx: Context, **options: object) -> Call:
    """Return the leader of a generation without an assignment."""
    leader = ctx.dynamic_join(**options)
    assert ctx.state is GroupState.COMPLETING_REBALANCE
    return leader


# --- accepted and refused heartbeats --------------------------------------------------------------


def test_h02_there_is_no_such_group() -> None:
    assert Context().heartbeat("member", generation=1).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_h03_a_dead_group_is_to_be_looked_for_elsewhere() -> None:
    ctx = Context()
    ctx.group = ClassicGroup(GROUP_ID, state=GroupState.DEAD)
    assert ctx.heartbeat("member", generation=1).code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_h04_an_empty_group_knows_nobody_not_even_a_member_it_still_has() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    assert ctx.group is not None
    ctx.group.state = GroupState.EMPTY
    assert ctx.heartbeat(leader).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_h04_an_emptied_group_knows_nobody() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    ctx.leave(leader)
    assert ctx.heartbeat(leader, generation=2).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_h05_an_unknown_member() -> None:
    ctx = Context()
    ctx.stable_group()
    assert ctx.heartbeat("stranger", generation=1).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_h05_a_member_that_has_only_been_given_its_id() -> None:
    ctx = Context()
    ctx.stable_group()
    pending = ctx.join(version=9)
    assert pending.code == ErrorCode.MEMBER_ID_REQUIRED
    assert ctx.heartbeat(pending.member_id, 1).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_h06_a_heartbeat_while_the_assignment_is_owed_is_fine() -> None:
    ctx = Context()
    # 27 until Kafka 2.6.0.
    assert ctx.heartbeat(completing(ctx)).code == ErrorCode.NONE


@pytest.mark.parametrize("generation", [0, 2, -1])
def test_h07_another_generation(generation: int) -> None:
    ctx = Context()
    leader = ctx.stable_group()
    assert ctx.heartbeat(leader, generation).code == ErrorCode.ILLEGAL_GENERATION


def test_h08_a_member_of_the_generation() -> None:
    ctx = Context()
    assert ctx.heartbeat(ctx.stable_group()).code == ErrorCode.NONE


def test_h13_a_heartbeat_tells_that_a_rebalance_has_begun() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    newcomer = ctx.join()
    assert newcomer.parked
    assert ctx.heartbeat(leader).code == ErrorCode.REBALANCE_IN_PROGRESS


def test_h13_but_an_old_generation_is_told_so_first() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    ctx.join()
    assert ctx.heartbeat(leader, 0).code == ErrorCode.ILLEGAL_GENERATION
    assert ctx.heartbeat("stranger", 1).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_h14_a_static_member_under_a_wrong_member_id_is_fenced() -> None:
    ctx = Context()
    leader, follower = ctx.static_pair()
    assert ctx.heartbeat(leader, instance_id="leader").code == ErrorCode.NONE
    assert ctx.heartbeat("wrong", 1, instance_id="leader").code == ErrorCode.FENCED_INSTANCE_ID
    assert ctx.heartbeat(follower, instance_id="leader").code == ErrorCode.FENCED_INSTANCE_ID
    assert ctx.heartbeat(leader, instance_id="unknown").code == ErrorCode.UNKNOWN_MEMBER_ID


# --- the session ----------------------------------------------------------------------------------


def test_h09_a_silent_member_is_forgotten_after_its_session() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    ctx.advance(SESSION_MS + 100)
    assert ctx.heartbeat(leader).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_h09_the_session_ends_at_its_deadline_and_not_before() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    ctx.heartbeat(leader)
    ctx.advance(SESSION_MS - 1)
    assert ctx.members == [leader.member_id]
    ctx.advance(1)
    assert ctx.members == []


def test_h09_the_audit_log_says_who_expired_and_why() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    ctx.advance(SESSION_MS)
    (expired,) = [event for event in ctx.events if event.event == "member_expired"]
    assert expired.member_id == leader.member_id
    assert "500 ms expired without a heartbeat" in (expired.reason or "")
    assert expired.request_id is None
    assert leader.member_id in (ctx.log[-1].reason or "")


def test_h10_heartbeats_keep_the_session() -> None:
    ctx = Context()
    leader = ctx.stable_group(session_ms=1000)
    ctx.advance(500)
    assert ctx.heartbeat(leader).code == ErrorCode.NONE
    ctx.advance(600)
    assert ctx.heartbeat(leader).code == ErrorCode.NONE


def test_h10_heartbeats_keep_the_session_while_the_assignment_is_owed() -> None:
    ctx = Context()
    leader = completing(ctx, rebalance_ms=LONG_MS)
    for _ in range(4):
        ctx.advance(400)
        assert ctx.heartbeat(leader).code == ErrorCode.NONE


def test_h10_heartbeats_keep_the_session_of_a_member_that_has_yet_to_rejoin() -> None:
    ctx = Context()
    leader = ctx.stable_group(rebalance_ms=LONG_MS)
    ctx.join()
    for _ in range(4):
        ctx.advance(400)
        assert ctx.heartbeat(leader).code == ErrorCode.REBALANCE_IN_PROGRESS
    ctx.advance(SESSION_MS)
    assert leader.member_id not in ctx.members


@pytest.mark.parametrize("generation", [0, 2])
def test_a_heartbeat_of_another_generation_keeps_nothing(generation: int) -> None:
    ctx = Context()
    leader = ctx.stable_group()
    ctx.advance(400)
    ctx.heartbeat(leader, generation)
    ctx.advance(100)
    assert ctx.members == []


def test_the_session_of_the_answered_join_begins_with_the_answer() -> None:
    ctx = Context()
    leader = ctx.two_step_join(rebalance_ms=LONG_MS)
    ctx.advance(INITIAL_DELAY_MS)
    assert leader.code == ErrorCode.NONE
    ctx.advance(SESSION_MS - 1)
    assert ctx.heartbeat(leader).code == ErrorCode.NONE


def test_a_member_that_waits_in_its_join_does_not_expire() -> None:
    ctx = Context()
    leader, follower = ctx.stable_pair()
    slow = ctx.join(session_ms=LONG_MS, rebalance_ms=LONG_MS)
    waiting = ctx.join(leader.member_id, rebalance_ms=LONG_MS)
    for _ in range(4):
        ctx.advance(400)
        assert ctx.heartbeat(follower).code == ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting.parked
    again = ctx.join(follower.member_id, rebalance_ms=LONG_MS)
    assert waiting.code == again.code == slow.code == ErrorCode.NONE
    ctx.advance(SESSION_MS - 1)
    assert ctx.heartbeat(waiting).code == ErrorCode.NONE


def test_an_expiry_in_stable_makes_the_others_rejoin() -> None:
    ctx = Context()
    leader, _ = ctx.stable_pair()
    ctx.advance(400)
    ctx.heartbeat(leader)
    ctx.advance(100)
    assert ctx.members == [leader.member_id]
    assert ctx.heartbeat(leader).code == ErrorCode.REBALANCE_IN_PROGRESS
    assert ctx.join(leader.member_id).generation == 2


def test_an_expiry_while_preparing_lets_the_others_go_on() -> None:
    ctx = Context()
    leader, _ = ctx.stable_pair()
    rejoined = ctx.join(leader.member_id, rebalance_ms=LONG_MS)
    assert rejoined.parked
    ctx.advance(SESSION_MS)
    assert rejoined.generation == 2
    assert ctx.members == [leader.member_id]


def test_h15_the_timers_of_a_group_that_is_given_up_are_gone() -> None:
    ctx = Context()
    ctx.stable_group()
    ctx.unload()
    events = len(ctx.events)
    ctx.advance(10 * SESSION_MS)
    assert len(ctx.events) == events
    assert ctx.group is None


def test_h16_the_session_of_a_member_that_left_ends_without_effect() -> None:
    ctx = Context()
    leader, follower = ctx.stable_pair()
    ctx.leave(follower)
    again = ctx.join(leader.member_id)
    ctx.sync(again, {})
    events = len(ctx.events)
    ctx.advance(400)
    assert ctx.heartbeat(again).code == ErrorCode.NONE
    ctx.advance(400)
    # In 0.10 the stale timer began a needless rebalance.
    assert ctx.state is GroupState.STABLE
    assert len(ctx.events) == events
