"""Unloading a group for another coordinator."""

from __future__ import annotations

from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from tests.context import INITIAL_DELAY_MS, Context, committed


def test_r31_the_group_is_gone_and_nothing_is_written() -> None:
    ctx = Context()
    ctx.stable_group()
    logged = len(ctx.log)
    ctx.unload()
    assert ctx.group is None
    assert len(ctx.log) == logged
    last = ctx.events[-2:]
    assert [event.event for event in last] == ["transition", "unloaded"]
    assert (last[0].from_state, last[0].to_state) == ("Stable", "Dead")


def test_joins_that_wait_are_sent_to_the_new_coordinator() -> None:
    ctx = Context()
    first = ctx.two_step_join()
    second = ctx.two_step_join()
    ctx.unload()
    for join in (first, second):
        assert join.code == ErrorCode.NOT_COORDINATOR
        assert join.body.generation_id == -1
        assert join.body.member_id == join.member_id


def test_syncs_that_wait_are_sent_to_the_new_coordinator() -> None:
    ctx = Context()
    ctx.join()
    follower = ctx.join()
    ctx.advance(2 * INITIAL_DELAY_MS)
    sync = ctx.sync(follower)
    assert sync.parked
    ctx.unload()
    assert sync.code == ErrorCode.NOT_COORDINATOR
    assert (sync.body.protocol_type, sync.assignment) == (None, b"")


def test_the_new_coordinator_finds_the_last_generation_stored() -> None:
    ctx = Context()
    leader, follower = ctx.stable_pair()
    ctx.commit({("foo", 0): 3}, follower)
    offsets = committed(ctx.group)
    ctx.join()
    assert ctx.state is GroupState.PREPARING_REBALANCE
    ctx.unload()
    ctx.load()
    assert ctx.state is GroupState.STABLE
    assert ctx.members == [leader.member_id, follower.member_id]
    assert ctx.sync(follower).assignment == b"follower"
    assert committed(ctx.group) == offsets


def test_a_first_generation_that_was_never_synced_is_lost_on_the_way() -> None:
    ctx = Context()
    leader = ctx.dynamic_join()
    ctx.unload()
    ctx.load()
    assert ctx.state is GroupState.EMPTY
    assert ctx.heartbeat(leader).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_waits_for_a_generation_that_was_never_synced_is_told_that_it_is_over() -> None:
    """Its sync is repeated to the group as it was stored, one generation before."""
    ctx = Context()
    leader, follower = ctx.stable_pair()
    joins = [ctx.join(leader.member_id), ctx.join(follower.member_id)]
    assert [join.generation for join in joins] == [2, 2]
    assert ctx.sync(joins[1]).parked
    ctx.unload()
    ctx.load()
    assert ctx.sync(joins[1]).code == ErrorCode.ILLEGAL_GENERATION
    assert ctx.join(follower.member_id).generation == 1


def test_an_id_that_was_given_out_and_not_used_is_unknown_to_the_new_coordinator() -> None:
    ctx = Context()
    first = ctx.join(version=4)
    assert first.code == ErrorCode.MEMBER_ID_REQUIRED
    ctx.unload()
    ctx.load()
    assert ctx.join(first.member_id, version=4).code == ErrorCode.UNKNOWN_MEMBER_ID
