"""The two-step join (KIP-394): a dynamic member gets its id first, and joins with it."""

from __future__ import annotations

from typing import Any

import pytest

from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from tests.context import REBALANCE_MS, SESSION_MS, TWO_STEP, Call, Context

PENDING_SESSION_MS = 100


def first_step(ctx: Context, **options: Any) -> Call:
    call = ctx.join(version=TWO_STEP, **options)
    assert call.code == ErrorCode.MEMBER_ID_REQUIRED
    return call


def pending_setup() -> tuple[Context, list[Call], Call]:
    """Create a group with both members rejoined, and a third one that has not used its id."""
    ctx = Context()
    first, second = ctx.stable_pair()
    rejoined = [ctx.join(first.member_id)]
    pending = first_step(ctx, session_ms=PENDING_SESSION_MS)
    rejoined.append(ctx.join(second.member_id))
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert list(ctx.group.pending_joins) == [pending.member_id]
    return ctx, rejoined, pending


@pytest.mark.parametrize(("version", "two_steps"), [(3, False), (4, True), (9, True), (None, True)])
def test_versions_from_four_on_ask_for_two_steps(version: int | None, two_steps: bool) -> None:
    ctx = Context()
    join = ctx.join(version=version)
    assert join.parked is not two_steps
    if two_steps:
        assert join.code == ErrorCode.MEMBER_ID_REQUIRED
        assert join.body.member_id.startswith("clientId-")
        assert ctx.state is GroupState.EMPTY
        assert ctx.members == []


def test_each_first_step_gets_an_id_of_its_own() -> None:
    ctx = Context()
    assert first_step(ctx).member_id != first_step(ctx).member_id
    assert len(ctx.group.pending_joins) == 2


def test_static_members_need_one_step() -> None:
    ctx = Context()
    assert ctx.join(instance_id="instance", version=TWO_STEP).parked


def test_the_second_step_joins_with_the_id() -> None:
    ctx = Context()
    first = first_step(ctx)
    second = ctx.join(first.member_id, version=TWO_STEP)
    ctx.advance(51)
    assert (second.code, second.member_id) == (ErrorCode.NONE, first.member_id)
    assert ctx.members == [first.member_id]
    assert not ctx.group.pending_joins


def test_j13_pending_id_survives_a_refused_second_step() -> None:
    ctx = Context()
    member_id = first_step(ctx).member_id
    refused = ctx.join(member_id, protocols=[], version=TWO_STEP)
    assert refused.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    accepted = ctx.join(member_id, version=TWO_STEP)
    ctx.advance(51)
    assert accepted.code == ErrorCode.NONE


def test_j21_an_id_never_used_lapses_and_disturbs_nobody() -> None:
    ctx = Context()
    member = ctx.stable_group(session_ms=60_000)
    first_step(ctx)
    assert len(ctx.group.pending_joins) == 1
    assert ctx.state is GroupState.STABLE
    ctx.advance(SESSION_MS - 1)
    assert len(ctx.group.pending_joins) == 1
    ctx.advance(1)
    assert not ctx.group.pending_joins
    assert ctx.members == [member.member_id]
    assert ctx.state is GroupState.STABLE
    assert ctx.heartbeat(member).code == ErrorCode.NONE


def test_j22_the_rebalance_completes_when_the_pending_member_joins() -> None:
    ctx, rejoined, pending = pending_setup()
    joined = ctx.join(pending.member_id, version=TWO_STEP)
    assert ctx.state is GroupState.COMPLETING_REBALANCE
    assert {call.generation for call in [*rejoined, joined]} == {2}
    assert len(ctx.members) == 3
    assert not ctx.group.pending_joins


def test_the_rebalance_completes_without_a_pending_member_whose_id_lapses() -> None:
    ctx, rejoined, _ = pending_setup()
    ctx.advance(PENDING_SESSION_MS - 1)
    assert ctx.state is GroupState.PREPARING_REBALANCE
    ctx.advance(1)
    assert [call.generation for call in rejoined] == [2, 2]
    assert len(ctx.members) == 2


def test_the_rebalance_timeout_does_not_wait_for_a_pending_member() -> None:
    """Its id stays valid: it joins the next generation."""
    ctx = Context()
    leader = ctx.stable_group(session_ms=60_000)
    pending = first_step(ctx, session_ms=10_000)
    rejoined = ctx.join(leader.member_id, session_ms=60_000)
    ctx.advance(REBALANCE_MS)
    assert rejoined.generation == 2
    late = ctx.join(pending.member_id, version=TWO_STEP, session_ms=10_000)
    assert late.parked
    assert ctx.state is GroupState.PREPARING_REBALANCE


def test_a_lapsed_id_is_unknown() -> None:
    ctx = Context()
    pending = first_step(ctx)
    ctx.advance(SESSION_MS)
    join = ctx.join(pending.member_id, version=TWO_STEP)
    assert join.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_second_step_is_timed_as_a_new_member() -> None:
    """The short session of the first step is over: the member waits as long as the group does."""
    ctx = Context()
    leader = ctx.stable_group(session_ms=60_000, rebalance_ms=60_000)
    pending = first_step(ctx, session_ms=PENDING_SESSION_MS)
    joined = ctx.join(pending.member_id, version=TWO_STEP, session_ms=PENDING_SESSION_MS)
    ctx.advance(10 * PENDING_SESSION_MS)
    assert joined.parked
    assert ctx.join(leader.member_id, session_ms=60_000, rebalance_ms=60_000).generation == 2
    assert joined.generation == 2


def test_a_pending_id_is_no_member_yet() -> None:
    ctx = Context()
    ctx.stable_group()
    pending = first_step(ctx)
    assert ctx.heartbeat(pending.member_id, 1).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ctx.sync(pending.member_id).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_given_to_a_dynamic_member_does_not_become_static() -> None:
    """Kafka treats this as a bug of the server, and answers with its error."""
    ctx = Context()
    pending = first_step(ctx)
    join = ctx.join(pending.member_id, "instance", version=TWO_STEP)
    assert join.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert join.body.member_id == ""
    assert ctx.members == []
    assert ctx.join(pending.member_id, version=TWO_STEP).parked
