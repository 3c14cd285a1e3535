"""group.max.size (KIP-389): Context's groups hold four."""

from __future__ import annotations

from collections.abc import Iterable

from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from tests.context import INITIAL_DELAY_MS, REBALANCE_MS, TWO_STEP, Call, Context

FOUR_AND_ONE = [ErrorCode.NONE] * 4 + [ErrorCode.GROUP_MAX_SIZE_REACHED]
PATIENT = {"session_ms": 60_000}


def codes(calls: Iterable[Call]) -> list[int]:
    return [call.code for call in calls]


def test_m01_the_fifth_member_is_refused() -> None:
    ctx = Context()
    first_four = [ctx.join() for _ in range(4)]
    fifth = ctx.join()
    assert fifth.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert fifth.body.member_id == ""
    ctx.advance(10 * INITIAL_DELAY_MS)
    assert codes(first_four) == [ErrorCode.NONE] * 4


def test_m02_ids_are_given_out_freely_and_count_when_they_are_used() -> None:
    ctx = Context()
    first_steps = [ctx.join(version=TWO_STEP) for _ in range(5)]
    assert codes(first_steps) == [ErrorCode.MEMBER_ID_REQUIRED] * 5
    joins = [ctx.join(first.member_id, version=TWO_STEP) for first in first_steps]
    ctx.advance(10 * INITIAL_DELAY_MS)
    assert codes(joins) == FOUR_AND_ONE
    assert ctx.state is GroupState.COMPLETING_REBALANCE
    again = [ctx.join(first.member_id, version=TWO_STEP) for first in first_steps]
    assert codes(again) == FOUR_AND_ONE
    assert len(ctx.members) == 4


def test_m03_one_step_members() -> None:
    ctx = Context()
    joins = [ctx.join() for _ in range(5)]
    ctx.advance(10 * INITIAL_DELAY_MS)
    assert codes(joins) == FOUR_AND_ONE
    assert codes([ctx.join(join.member_id) for join in joins]) == FOUR_AND_ONE


def test_m04_static_members() -> None:
    ctx = Context()
    instances = [f"instance-{number}" for number in range(5)]
    joins = [ctx.join(instance_id=instance) for instance in instances]
    ctx.advance(10 * INITIAL_DELAY_MS)
    assert codes(joins) == FOUR_AND_ONE
    again = [
        ctx.join(join.member_id, instance) for join, instance in zip(joins, instances, strict=True)
    ]
    assert codes(again) == FOUR_AND_ONE


def test_m05_those_who_wait_may_repeat_their_join() -> None:
    ctx = Context()
    first_steps = [ctx.join(version=TWO_STEP) for _ in range(5)]
    joins = [ctx.join(first.member_id, version=TWO_STEP) for first in first_steps]
    again = [ctx.join(first.member_id, version=TWO_STEP) for first in first_steps]
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert codes(joins) == [ErrorCode.REBALANCE_IN_PROGRESS] * 4 + FOUR_AND_ONE[4:]
    ctx.advance(10 * INITIAL_DELAY_MS)
    assert codes(again) == FOUR_AND_ONE


def test_a_refused_id_is_forgotten() -> None:
    """No rebalance waits for the id that came too late."""
    ctx = Context()
    late = ctx.join(version=TWO_STEP)
    for _ in range(4):
        ctx.join()
    assert list(ctx.group.pending_joins) == [late.member_id]
    assert ctx.join(late.member_id).code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not ctx.group.pending_joins


def test_there_is_room_again_when_a_member_has_left() -> None:
    ctx = Context(group_max_size=1)
    member = ctx.stable_group()
    assert ctx.join().code == ErrorCode.GROUP_MAX_SIZE_REACHED
    ctx.leave(member)
    assert ctx.join().parked


def test_a_loaded_group_over_the_limit_rebalances_and_leaves_the_last_ones_out() -> None:
    """The limit was lowered while another coordinator had the group (KAFKA-9885)."""
    before = Context(group_max_size=3)
    joins = [before.join(**PATIENT) for _ in range(3)]
    before.advance(10 * INITIAL_DELAY_MS)
    for join in joins:
        before.sync(join)
    ctx = Context(group_max_size=2)
    ctx.load(before.log)
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert "over capacity (3 members, 2 allowed)" in ctx.events[-1].reason
    *kept, last = reversed(joins)
    rejoined = [ctx.join(join.member_id, **PATIENT) for join in kept]
    assert ctx.join(last.member_id, **PATIENT).code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert ctx.events[-1].event == "member_left"
    assert "group.max.size (2)" in ctx.events[-1].reason
    # Kafka does not check whether the rest is complete: it waits for the timeout.
    assert all(join.parked for join in rejoined)
    ctx.advance(REBALANCE_MS)
    assert codes(rejoined) == [ErrorCode.NONE] * 2
    assert sorted(ctx.members) == sorted(join.member_id for join in kept)


def test_a_loaded_group_at_the_limit_is_left_alone() -> None:
    before = Context()
    before.stable_pair()
    ctx = Context(group_max_size=2)
    ctx.load(before.log)
    assert ctx.state is GroupState.STABLE
