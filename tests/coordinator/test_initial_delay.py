"""group.initial.rebalance.delay.ms (KIP-134): an empty group waits for more members.

The delay of `Context` is 50 ms.
"""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from tests.context import INITIAL_DELAY_MS, TWO_STEP, Call, Context


def completed_at(ctx: Context, join: Call) -> int:
    """Run until the join is answered; return the time."""
    while join.parked:
        ctx.advance(1)
    return join.response.responded_at


def test_d01_the_first_rebalance_waits_for_the_delay() -> None:
    ctx = Context()
    join = ctx.join()
    ctx.advance(25)
    assert join.parked
    ctx.advance(26)
    assert join.code == ErrorCode.NONE
    assert join.response.responded_at == 50


def test_d02_a_newcomer_extends_the_delay_once_more() -> None:
    ctx = Context()
    first = ctx.join(rebalance_ms=150)
    ctx.advance(49)
    second = ctx.join(rebalance_ms=150)
    ctx.advance(28)
    assert ctx.now == 77
    assert first.parked and second.parked
    ctx.advance(25)
    assert first.code == second.code == ErrorCode.NONE
    assert first.response.responded_at == 100


@pytest.mark.parametrize("rebalance_ms", [150, 120, 60, 50, 40])
def test_newcomers_extend_the_delay_no_further_than_the_rebalance_timeout(
    rebalance_ms: int,
) -> None:
    """The first member's timeout is the limit, but the first delay always passes."""
    ctx = Context(group_max_size=1000)
    first = ctx.join(rebalance_ms=rebalance_ms)
    while first.parked and ctx.now < 1000:
        ctx.join(rebalance_ms=rebalance_ms)
        ctx.advance(10)
    assert first.response.responded_at == max(rebalance_ms, INITIAL_DELAY_MS)


def test_a_member_that_repeats_its_join_extends_nothing() -> None:
    ctx = Context()
    first = ctx.join(version=TWO_STEP)
    ctx.join(first.member_id, version=TWO_STEP)
    ctx.advance(40)
    again = ctx.join(first.member_id, version=TWO_STEP)
    assert completed_at(ctx, again) == 50


def test_delay_zero_completes_at_once() -> None:
    ctx = Context(group_initial_rebalance_delay_ms=0)
    join = ctx.join()
    assert (join.code, join.generation) == (ErrorCode.NONE, 1)
    assert ctx.state is GroupState.COMPLETING_REBALANCE


def test_delay_zero_extends_nothing() -> None:
    """Each new member joins a group that rebalances, or causes a rebalance."""
    ctx = Context(group_initial_rebalance_delay_ms=0)
    first = ctx.join()
    second = ctx.join()
    assert second.parked
    assert ctx.join(first.member_id).generation == 2
    assert second.generation == 2


def test_a_group_with_members_does_not_delay() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    rejoined = ctx.join(leader.member_id)
    assert rejoined.response.responded_at == ctx.now


def test_an_emptied_group_delays_again() -> None:
    ctx = Context()
    ctx.leave(ctx.stable_group())
    started = ctx.now
    assert completed_at(ctx, ctx.join()) == started + INITIAL_DELAY_MS


def test_the_delay_does_not_wait_for_half_finished_joins() -> None:
    """Later rebalances wait for members with a new id; the first one ends with its delay."""
    ctx = Context()
    join = ctx.join()
    half = ctx.join(version=TWO_STEP)
    ctx.advance(INITIAL_DELAY_MS)
    assert join.code == ErrorCode.NONE
    assert list(ctx.group.pending_joins) == [half.member_id]


def test_an_id_that_lapses_ends_the_delay_if_everybody_else_is_there() -> None:
    """Kafka checks then, and only then, whether all members have joined."""
    ctx = Context()
    join = ctx.join()
    ctx.join(version=TWO_STEP, session_ms=20)
    assert completed_at(ctx, join) == 20


def test_a_group_that_empties_during_the_delay_ends_with_it() -> None:
    ctx = Context()
    first = ctx.two_step_join()
    assert ctx.leave(first).member_codes == [ErrorCode.NONE]
    assert first.code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ctx.state is GroupState.PREPARING_REBALANCE
    ctx.advance(INITIAL_DELAY_MS)
    assert ctx.state is GroupState.EMPTY
    assert ctx.group.generation_id == 1
