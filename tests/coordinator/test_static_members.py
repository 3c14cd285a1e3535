"""Static members (KIP-345): a member with a group.instance.id stays a member after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from tests.context import INITIAL_DELAY_MS, RANGE, SESSION_MS, SUPERSET, TWO_STEP, Call, Context

STATIC = {"version": TWO_STEP, "protocols": SUPERSET}
PATIENT = {**STATIC, "session_ms": 60_000}


def rejoin(ctx: Context, instance_id: str, **options: Any) -> Call:
    """Join as an instance after a restart, which has forgotten its member id."""
    return ctx.join(instance_id=instance_id, **{**STATIC, **options})


def timeouts(ctx: Context) -> set[tuple[int, int]]:
    members = ctx.group.members.values()
    return {(m.session_timeout_ms, m.rebalance_timeout_ms) for m in members}


def unchanged_generation(ctx: Context, call: Call) -> bool:
    """Return whether the call was answered at once, in generation 1 of a still Stable group."""
    return (call.code, call.generation, ctx.state) == (ErrorCode.NONE, 1, GroupState.STABLE)


# --- joining ------------------------------------------------------------------------------------


def test_t01_a_static_member_joins_in_one_step() -> None:
    ctx = Context()
    join = ctx.join(instance_id="leader", **STATIC)
    assert join.parked
    ctx.advance(INITIAL_DELAY_MS)
    assert join.code == ErrorCode.NONE
    assert join.member_id.startswith("leader-")
    assert join.body.members[0].group_instance_id == "leader"


def test_t02_the_instance_with_an_id_nobody_gave_is_fenced() -> None:
    ctx = Context()
    ctx.static_pair()
    join = ctx.join("somebody", "leader", **STATIC)
    assert join.code == ErrorCode.FENCED_INSTANCE_ID
    assert join.body.member_id == "somebody"


def test_t03_a_member_id_with_an_instance_nobody_knows() -> None:
    ctx = Context()
    leader, _ = ctx.static_pair()
    join = ctx.join(leader.member_id, "stranger", **STATIC)
    assert join.code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [("follower", "leader"), ("leader", "follower")],
    ids=["t04_follower_as_leader", "t05_leader_as_follower"],
)
def test_t04_t05_nobody_joins_as_another_instance(mine: str, theirs: str) -> None:
    ctx = Context()
    ids = dict(zip(("leader", "follower"), ctx.static_pair(), strict=True))
    join = ctx.join(ids[mine].member_id, theirs, **STATIC)
    assert join.code == ErrorCode.FENCED_INSTANCE_ID
    assert ctx.state is GroupState.STABLE


def test_t06_an_unchanged_member_is_told_the_generation_again() -> None:
    ctx = Context()
    join = ctx.join(instance_id="leader", **STATIC)
    ctx.advance(INITIAL_DELAY_MS)
    again = ctx.join(join.member_id, "leader", **STATIC)
    assert again.body == join.body
    assert ctx.state is GroupState.COMPLETING_REBALANCE
    assert ctx.sync(again, instance_id="leader").code == ErrorCode.NONE
    assert ctx.state is GroupState.STABLE


# --- back after a restart, in a stable group ------------------------------------------------------


def test_t07_a_restarted_leader_skips_the_assignment() -> None:
    """From version 9 on the response says that it leads, and that it need not assign (KIP-814)."""
    ctx = Context()
    old, follower = ctx.static_pair()
    new = rejoin(ctx, "leader")
    assert unchanged_generation(ctx, new)
    assert new.member_id not in (old.member_id, "")
    assert new.body.leader == new.member_id
    assert new.body.skip_assignment
    listed = {(m.member_id, m.group_instance_id) for m in new.body.members}
    assert listed == {(new.member_id, "leader"), (follower.member_id, "follower")}


def test_t07_an_older_restarted_leader_takes_itself_for_a_follower() -> None:
    """It gets its old id as the leader's, because it could not skip the assignment."""
    ctx = Context()
    old, _ = ctx.static_pair()
    new = rejoin(ctx, "leader", version=TWO_STEP - 1)
    assert unchanged_generation(ctx, new)
    assert new.member_id not in (old.member_id, "")
    assert new.body.leader == old.member_id
    assert not new.body.skip_assignment
    assert new.body.members == ()


@pytest.mark.parametrize("version", [TWO_STEP, TWO_STEP - 1])
def test_t07_the_old_id_is_fenced(version: int | None) -> None:
    ctx = Context()
    old, _ = ctx.static_pair()
    new = rejoin(ctx, "leader", version=version)
    assert ctx.join(old.member_id, "leader", **STATIC).code == ErrorCode.FENCED_INSTANCE_ID
    assert ctx.sync(old, instance_id="leader").code == ErrorCode.FENCED_INSTANCE_ID
    assert ctx.sync(old).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ctx.group.leader_id == new.member_id


def test_the_restarted_leader_leads_the_next_rebalance() -> None:
    ctx = Context()
    _, follower = ctx.static_pair()
    leader = rejoin(ctx, "leader", version=TWO_STEP - 1)
    again = ctx.join(leader.member_id, "leader", **STATIC)
    assert ctx.join(follower.member_id, "follower", **STATIC).generation == 2
    assert again.body.leader == leader.member_id
    assert len(again.body.members) == 2


def test_t09_a_dead_group_sends_the_instance_to_find_the_coordinator() -> None:
    ctx = Context()
    leader, _ = ctx.static_pair()
    ctx.group.transition_to(GroupState.DEAD, ctx.now)
    join = ctx.join(leader.member_id, "leader", **STATIC)
    assert join.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_t10_an_empty_group_that_has_the_member_takes_it_for_unknown() -> None:
    """No group is ever empty and has members; in such a group the member would join as new."""
    ctx = Context()
    leader, _ = ctx.static_pair()
    ctx.group.state = GroupState.EMPTY
    join = ctx.join(leader.member_id, "leader", **STATIC)
    assert join.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_t11_an_empty_group_that_has_the_instance_is_a_bug() -> None:
    ctx = Context()
    ctx.static_pair()
    ctx.group.state = GroupState.EMPTY
    with pytest.raises(RuntimeError, match=r"'groupId' is Empty.*'leader'"):
        rejoin(ctx, "leader")


def test_t14_a_restarted_member_may_offer_less_as_long_as_the_vote_stands() -> None:
    ctx = Context()
    _, old = ctx.static_pair()
    new = rejoin(ctx, "follower", protocols=RANGE)
    assert unchanged_generation(ctx, new)
    assert new.body.members == ()
    assert ctx.join(old.member_id, "follower", **STATIC).code == ErrorCode.FENCED_INSTANCE_ID
    assert ctx.sync(old, instance_id="follower").code == ErrorCode.FENCED_INSTANCE_ID
    assert ctx.sync(new, instance_id="follower").assignment == b"follower"


def test_the_new_id_is_stored_with_the_old_assignment() -> None:
    """Another coordinator that loads the group knows the member by its new id."""
    ctx = Context()
    leader, old = ctx.static_pair()
    new = rejoin(ctx, "follower", protocols=RANGE)
    value = ctx.log[-1].group_metadata
    assert (value.generation, value.leader) == (1, leader.member_id)
    stored = {m.member_id: m.assignment for m in value.members}
    assert stored == {leader.member_id: b"leader", new.member_id: b"follower"}
    assert ctx.log[-1].reason == f"static member {new.member_id} replaced {old.member_id}"


def test_t15_a_new_id_that_cannot_be_stored_is_not_given() -> None:
    ctx = Context()
    _, old = ctx.static_pair()
    events, log = list(ctx.events), list(ctx.log)
    ctx.log_refuses = True
    join = rejoin(ctx, "follower", protocols=RANGE)
    assert join.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert join.body.member_id == ""
    assert (join.generation, ctx.state) == (1, GroupState.STABLE)
    assert (ctx.events, ctx.log) == (events, log)
    ctx.log_refuses = False
    assert unchanged_generation(ctx, ctx.join(old.member_id, "follower", **STATIC))
    assert ctx.sync(old, instance_id="follower").assignment == b"follower"


def test_t15_the_leader_keeps_its_id_too() -> None:
    ctx = Context()
    old, _ = ctx.static_pair()
    ctx.log_refuses = True
    join = rejoin(ctx, "leader")
    assert join.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert join.body.leader == old.member_id == ctx.group.leader_id
    assert join.body.members == ()


def test_t16_new_timeouts_that_cannot_be_stored_are_not_taken_over() -> None:
    ctx = Context()
    ctx.static_pair()
    before = timeouts(ctx)
    ctx.log_refuses = True
    for instance in ("leader", "follower"):
        join = rejoin(ctx, instance, session_ms=1000, rebalance_ms=1000)
        assert join.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert timeouts(ctx) == before == {(500, 500)}


def test_t17_new_timeouts_are_taken_over() -> None:
    ctx = Context()
    ctx.static_pair()
    leader = rejoin(ctx, "leader", session_ms=1000, rebalance_ms=1000)
    follower = rejoin(ctx, "follower", session_ms=1000, rebalance_ms=1000)
    assert unchanged_generation(ctx, leader) and unchanged_generation(ctx, follower)
    assert leader.body.skip_assignment and len(leader.body.members) == 2
    assert not follower.body.skip_assignment and follower.body.members == ()
    assert timeouts(ctx) == {(1000, 1000)}
    stored = ctx.log[-1].group_metadata.members
    assert {(m.session_timeout, m.rebalance_timeout) for m in stored} == {(1000, 1000)}


def test_t19_a_restarted_follower_keeps_its_assignment() -> None:
    ctx = Context()
    leader, old = ctx.static_pair()
    new = rejoin(ctx, "follower")
    assert unchanged_generation(ctx, new)
    assert new.member_id != old.member_id
    assert new.body.leader == leader.member_id
    assert ctx.sync(new, instance_id="follower").assignment == b"follower"


def test_t20_a_follower_that_kept_its_id_is_told_the_generation_again() -> None:
    ctx = Context()
    leader, follower = ctx.static_pair()
    again = ctx.join(follower.member_id, "follower", **STATIC)
    assert unchanged_generation(ctx, again)
    assert again.member_id == follower.member_id
    assert again.body.leader == leader.member_id
    assert again.body.members == ()


def test_t21_every_restart_gets_an_id_of_its_own() -> None:
    ctx = Context()
    ctx.static_pair()
    ids = [rejoin(ctx, "follower").member_id for _ in range(5)]
    assert len(set(ids)) == 5
    assert all(member_id.startswith("follower-") for member_id in ids)
    assert len(ctx.members) == 2


def test_a_restarted_member_is_timed_from_its_return() -> None:
    ctx = Context()
    ctx.static_pair()
    ctx.advance(SESSION_MS // 2)
    leader, follower = rejoin(ctx, "leader"), rejoin(ctx, "follower")
    ctx.advance(SESSION_MS - 1)
    assert ctx.members == [leader.member_id, follower.member_id]
    ctx.advance(1)
    assert ctx.state is GroupState.EMPTY


def test_a_restarted_member_that_changes_the_vote_starts_a_rebalance() -> None:
    ctx = Context()
    leader, old = ctx.static_pair(**PATIENT)
    new = rejoin(ctx, "follower", protocols=["roundrobin"])
    assert new.parked
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert "joined with change of protocol" in ctx.events[-1].reason
    again = ctx.join(leader.member_id, "leader", **STATIC)
    assert again.generation == new.generation == 2
    assert again.body.protocol_name == "roundrobin"
    assert ctx.sync(old, instance_id="follower").code == ErrorCode.FENCED_INSTANCE_ID


def test_a_new_id_of_a_rebalance_that_was_not_stored_is_fenced_as_in_kafka() -> None:
    """Only the leader's sync, or a return to a Stable group, stores an id: a load has the old one.

    The process must join again, as after a restart.
    """
    ctx = Context()
    leader, old = ctx.static_pair(**PATIENT)
    leading = ctx.join(leader.member_id, "leader", **PATIENT)
    new = rejoin(ctx, "follower", **PATIENT)
    assert (leading.generation, new.generation) == (2, 2)
    ctx.unload()
    ctx.load()
    assert set(ctx.members) == {leader.member_id, old.member_id}
    assert ctx.sync(new, instance_id="follower").code == ErrorCode.FENCED_INSTANCE_ID
    again = rejoin(ctx, "follower", **PATIENT)
    assert unchanged_generation(ctx, again)
    assert ctx.sync(again, instance_id="follower").assignment == b"follower"


# --- two processes with one name ------------------------------------------------------------------


def test_t22_a_duplicate_fences_the_member_that_waits() -> None:
    ctx = Context()
    _, old = ctx.static_pair(**PATIENT)
    ctx.join(instance_id="third", **STATIC)
    waiting = ctx.join(old.member_id, "follower", **STATIC)
    assert waiting.parked
    assert ctx.state is GroupState.PREPARING_REBALANCE
    duplicate = rejoin(ctx, "follower")
    assert waiting.code == ErrorCode.FENCED_INSTANCE_ID
    assert (waiting.generation, waiting.body.members) == (-1, ())
    assert waiting.body.protocol_type is None
    assert waiting.body.member_id == old.member_id
    assert duplicate.parked
    assert ctx.state is GroupState.PREPARING_REBALANCE


def test_t24_the_old_member_is_fenced_when_the_duplicate_came_first() -> None:
    ctx = Context()
    leader, old = ctx.static_pair(**PATIENT)
    leading = ctx.join(leader.member_id, "leader", **STATIC)
    assert ctx.state is GroupState.PREPARING_REBALANCE
    duplicate = rejoin(ctx, "follower")
    late = ctx.join(old.member_id, "follower", **STATIC)
    assert (late.code, late.generation) == (ErrorCode.FENCED_INSTANCE_ID, -1)
    assert leading.generation == duplicate.generation == 2
    assert {m.member_id for m in leading.body.members} == {leader.member_id, duplicate.member_id}
    assert duplicate.member_id != old.member_id
    assert ctx.state is GroupState.COMPLETING_REBALANCE


def test_t24_while_others_are_waited_for() -> None:
    ctx = Context()
    leader, old = ctx.static_pair(**PATIENT)
    newcomer = ctx.join(instance_id="third", **STATIC)
    duplicate = rejoin(ctx, "follower")
    late = ctx.join(old.member_id, "follower", **STATIC)
    assert late.code == ErrorCode.FENCED_INSTANCE_ID
    assert duplicate.parked and newcomer.parked
    leading = ctx.join(leader.member_id, "leader", **STATIC)
    assert {call.generation for call in (leading, duplicate, newcomer)} == {2}
    assert len(leading.body.members) == 3


def test_a_duplicate_fences_the_member_that_waits_for_its_assignment() -> None:
    """The leader may be assigning to the old id: all members must join again."""
    ctx = Context()
    leader = ctx.join(instance_id="leader", **STATIC)
    follower = ctx.join(instance_id="follower", **STATIC)
    other = ctx.join(instance_id="other", **STATIC)
    ctx.advance(2 * INITIAL_DELAY_MS)
    waiting = ctx.sync(follower, instance_id="follower")
    waiting_too = ctx.sync(other, instance_id="other")
    duplicate = rejoin(ctx, "follower")
    assert waiting.code == ErrorCode.FENCED_INSTANCE_ID
    assert waiting_too.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert duplicate.parked
    assert ctx.state is GroupState.PREPARING_REBALANCE
    late = ctx.sync(leader, {follower.member_id: b"all"}, instance_id="leader")
    assert late.code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_duplicate_of_a_new_member_waits_as_a_known_one() -> None:
    """It was a member before, even if it only waited: the limit of new members does not hold."""
    ctx = Context()
    leader = ctx.stable_group(session_ms=600_000, rebalance_ms=900_000)
    ctx.join(instance_id="till", session_ms=600_000)
    duplicate = ctx.join(instance_id="till", session_ms=600_000)
    ctx.advance(400_000)
    assert duplicate.parked
    assert ctx.join(leader.member_id).generation == 2
    assert duplicate.generation == 2


def test_a_fence_is_in_the_audit_log() -> None:
    ctx = Context()
    _, old = ctx.static_pair()
    new = rejoin(ctx, "follower")
    fenced = ctx.events[-1]
    assert (fenced.event, fenced.member_id) == ("member_fenced", old.member_id)
    assert fenced.group_instance_id == "follower"
    assert fenced.reason == f"replaced by {new.member_id}"
    assert fenced.request_id == new.request.request_id
