"""SyncGroup: the leader's assignment is stored, and then each member gets its part."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from tests.context import GROUP_ID, INITIAL_DELAY_MS, Call, Context


def completing_pair(ctx: Context, **options: object) -> tuple[Call, Call]:
    """Return a leader and a follower of generation 1 that have not synced."""
    leader, follower = ctx.join(**options), ctx.join(**options)  # type: ignore[arg-type]
    ctx.advance(2 * INITIAL_DELAY_MS + 1)
    assert ctx.state is GroupState.COMPLETING_REBALANCE
    return leader, follower


# --- accepted and refused syncs -------------------------------------------------------------------


def test_s02_there_is_no_such_group() -> None:
    assert Context().sync("member", generation=1).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_s02_the_group_is_empty() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    ctx.leave(leader)
    assert ctx.state is GroupState.EMPTY
    assert ctx.sync(leader, generation=2).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_s02_an_empty_group_knows_nobody_not_even_a_member_it_still_has() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    assert ctx.group is not None
    ctx.group.state = GroupState.EMPTY
    assert ctx.sync(leader).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_s03_an_unknown_member() -> None:
    ctx = Context()
    ctx.stable_group()
    assert ctx.sync("stranger", generation=1).code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("generation", [0, 2, -1])
def test_s04_another_generation(generation: int) -> None:
    ctx = Context()
    leader = ctx.dynamic_join()
    assert ctx.sync(leader, generation=generation).code == ErrorCode.ILLEGAL_GENERATION
    assert ctx.state is GroupState.COMPLETING_REBALANCE


def test_s05_a_dead_group_is_to_be_looked_for_elsewhere() -> None:
    ctx = Context()
    ctx.group = ClassicGroup(GROUP_ID, state=GroupState.DEAD)
    assert ctx.sync("member", generation=1).code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_s10_a_static_member_under_a_wrong_member_id_is_fenced() -> None:
    ctx = Context()
    leader, follower = ctx.static_pair()
    assert ctx.sync("wrong", instance_id="leader", generation=1).code == (
        ErrorCode.FENCED_INSTANCE_ID
    )
    assert ctx.sync(follower, instance_id="leader").code == ErrorCode.FENCED_INSTANCE_ID
    assert ctx.sync(leader, instance_id="unknown").code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ctx.sync(leader, instance_id="leader").code == ErrorCode.NONE


@pytest.mark.parametrize("who", [0, 1], ids=["leader", "follower"])
def test_s11_another_protocol_type(who: int) -> None:
    ctx = Context()
    member = completing_pair(ctx)[who]
    sync = ctx.sync(member, protocol_type="connect", protocol_name="range")
    assert sync.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (sync.body.protocol_type, sync.body.protocol_name) == (None, None)


@pytest.mark.parametrize("who", [0, 1], ids=["leader", "follower"])
def test_s12_another_protocol_name(who: int) -> None:
    ctx = Context()
    member = completing_pair(ctx)[who]
    sync = ctx.sync(member, protocol_type="consumer", protocol_name="roundrobin")
    assert sync.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (sync.body.protocol_type, sync.body.protocol_name) == (None, None)


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name"),
    [
        pytest.param(None, None, id="s13-not-provided"),
        pytest.param("consumer", "range", id="s14-consistent"),
        pytest.param("consumer", None, id="type-alone"),
        pytest.param(None, "range", id="name-alone"),
    ],
)
def test_s13_s14_type_and_name_come_with_the_answer(
    protocol_type: str | None, protocol_name: str | None
) -> None:
    ctx = Context()
    leader, follower = completing_pair(ctx)
    kinds = {"protocol_type": protocol_type, "protocol_name": protocol_name}
    waiting = ctx.sync(follower, **kinds)  # type: ignore[arg-type]
    leading = ctx.sync(leader, {}, **kinds)  # type: ignore[arg-type]
    for sync in (leading, waiting):
        assert sync.code == ErrorCode.NONE
        assert (sync.body.protocol_type, sync.body.protocol_name) == ("consumer", "range")


def test_below_version_5_neither_type_nor_name_is_answered() -> None:
    ctx = Context()
    leader, follower = completing_pair(ctx)
    waiting = ctx.sync(follower, version=4)
    ctx.sync(leader, {follower.member_id: b"part"}, version=4)
    late = ctx.sync(follower, version=4)
    for sync in (waiting, late):
        assert (sync.body.protocol_type, sync.body.protocol_name) == (None, None)
        assert sync.assignment == b"part"


def test_a_sync_while_the_next_generation_is_prepared_is_told_to_rejoin() -> None:
    ctx = Context()
    leader, follower = ctx.stable_pair()
    ctx.join(leader.member_id)
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert ctx.sync(follower).code == ErrorCode.REBALANCE_IN_PROGRESS


# --- the assignment -------------------------------------------------------------------------------


def test_s06_a_member_missing_from_the_leaders_map_gets_nothing_and_the_group_is_stable() -> None:
    ctx = Context()
    leader = ctx.dynamic_join()
    sync = ctx.sync(leader, {})
    assert sync.code == ErrorCode.NONE
    assert sync.assignment == b""
    assert ctx.state is GroupState.STABLE
    assert ctx.heartbeat(leader).code == ErrorCode.NONE


def test_s07_a_follower_that_syncs_after_the_leader_is_answered_at_once() -> None:
    ctx = Context()
    leader, follower = completing_pair(ctx)
    leading = ctx.sync(leader, {leader.member_id: b"\x00", follower.member_id: b"\x01"})
    assert (leading.code, leading.assignment) == (ErrorCode.NONE, b"\x00")
    following = ctx.sync(follower)
    assert (following.code, following.assignment) == (ErrorCode.NONE, b"\x01")


def test_s08_a_follower_that_syncs_first_waits_for_the_leader() -> None:
    ctx = Context()
    leader, follower = completing_pair(ctx)
    following = ctx.sync(follower)
    assert following.parked
    leading = ctx.sync(leader, {leader.member_id: b"\x00", follower.member_id: b"\x01"})
    assert (leading.code, leading.assignment) == (ErrorCode.NONE, b"\x00")
    assert (following.code, following.assignment) == (ErrorCode.NONE, b"\x01")


def test_the_group_is_stored_before_anyone_is_answered() -> None:
    ctx = Context()
    leader, follower = completing_pair(ctx)
    logged = len(ctx.log)
    leading = ctx.sync(leader, {follower.member_id: b"part"})
    (record,) = ctx.log[logged:]
    assert record.reason == "leader synced"
    assert record.request_id == leading.request.request_id
    stored = record.group_metadata
    assert stored is not None
    assert (stored.generation, stored.leader, stored.protocol) == (1, leader.member_id, "range")
    assert {m.member_id: m.assignment for m in stored.members} == {
        leader.member_id: b"",
        follower.member_id: b"part",
    }


def test_only_the_leaders_map_counts() -> None:
    ctx = Context()
    leader, follower = completing_pair(ctx)
    following = ctx.sync(follower, {follower.member_id: b"mine", leader.member_id: b"yours"})
    ctx.sync(leader, {follower.member_id: b"given"})
    assert following.assignment == b"given"
    ctx.sync(follower, {follower.member_id: b"mine"})
    assert ctx.sync(follower).assignment == b"given"


def test_unknown_members_in_the_leaders_map_are_ignored() -> None:
    ctx = Context()
    leader = ctx.dynamic_join()
    sync = ctx.sync(leader, {leader.member_id: b"all", "stranger": b"x" * 100})
    assert (sync.code, sync.assignment) == (ErrorCode.NONE, b"all")
    stored = ctx.log[-1].group_metadata
    assert stored is not None
    assert [m.member_id for m in stored.members] == [leader.member_id]


def test_a_parked_sync_that_is_repeated_is_answered_and_the_new_one_waits() -> None:
    ctx = Context()
    leader, follower = completing_pair(ctx)
    first, second = ctx.sync(follower), ctx.sync(follower)
    # Kafka would never answer the first one; here each request is answered.
    assert first.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.parked
    ctx.sync(leader, {follower.member_id: b"part"})
    assert second.assignment == b"part"


# --- the store fails ------------------------------------------------------------------------------


def test_w04_w05_every_parked_sync_is_told_that_the_store_failed() -> None:
    ctx = Context()
    leader, follower = completing_pair(ctx)
    following = ctx.sync(follower)
    logged = len(ctx.log)
    ctx.log_refuses = True
    leading = ctx.sync(leader, {follower.member_id: b"part"})
    assert leading.code == following.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert leading.assignment == following.assignment == b""
    assert len(ctx.log) == logged
    assert ctx.state is GroupState.PREPARING_REBALANCE


def test_w03_w05_a_store_that_succeeds_is_answered_0() -> None:
    ctx = Context()
    leader, follower = completing_pair(ctx)
    following, leading = ctx.sync(follower), ctx.sync(leader, {})
    assert leading.code == following.code == ErrorCode.NONE


def test_an_assignment_over_max_message_bytes_is_a_store_that_failed() -> None:
    ctx = Context(max_message_bytes=1000)
    leader, follower = completing_pair(ctx)
    following = ctx.sync(follower)
    leading = ctx.sync(leader, {leader.member_id: b"x" * 1000})
    assert leading.code == following.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert ctx.state is GroupState.PREPARING_REBALANCE
    again = [ctx.join(leader.member_id), ctx.join(follower.member_id)]
    assert [join.generation for join in again] == [2, 2]
    assert ctx.sync(again[0], {leader.member_id: b"x"}).code == ErrorCode.NONE


def test_after_a_store_that_failed_the_members_sessions_run() -> None:
    ctx = Context()
    leader, follower = completing_pair(ctx, rebalance_ms=10_000)
    ctx.sync(follower)
    ctx.log_refuses = True
    ctx.sync(leader, {})
    ctx.log_refuses = False
    ctx.advance(501)
    assert ctx.members == []
    assert ctx.state is GroupState.EMPTY


# --- sessions, and the time for syncs -------------------------------------------------------------


def test_s09_follower_is_told_when_the_leader_dies() -> None:
    ctx = Context()
    leader, follower = completing_pair(ctx, rebalance_ms=10_000)
    following = ctx.sync(follower)
    ctx.advance(501)
    assert following.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert ctx.members == [follower.member_id]
    assert ctx.heartbeat(leader).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_in_its_sync_does_not_expire_and_gets_a_fresh_session() -> None:
    ctx = Context()
    leader, follower = completing_pair(ctx, rebalance_ms=10_000)
    following = ctx.sync(follower)
    for _ in range(3):
        ctx.advance(400)
        assert ctx.heartbeat(leader).code == ErrorCode.NONE
    ctx.sync(leader, {})
    assert following.code == ErrorCode.NONE
    ctx.advance(499)
    assert ctx.heartbeat(follower).code == ErrorCode.NONE


def test_a_sync_in_stable_does_not_refresh_the_session() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    ctx.advance(400)
    # The Scala coordinator renewed it here, the Java one does not.
    assert ctx.sync(leader).code == ErrorCode.NONE
    ctx.advance(101)
    assert ctx.heartbeat(leader).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_s15_members_that_never_sync_are_evicted_after_the_rebalance_timeout() -> None:
    ctx = Context()
    joins = [ctx.two_step_join(session_ms=5000, rebalance_ms=1000) for _ in range(3)]
    ctx.advance(3 * INITIAL_DELAY_MS + 1)
    assert ctx.state is GroupState.COMPLETING_REBALANCE
    ctx.advance(500)
    assert [ctx.heartbeat(join).code for join in joins] == [ErrorCode.NONE] * 3
    ctx.advance(501)
    assert [ctx.heartbeat(join).code for join in joins] == [ErrorCode.UNKNOWN_MEMBER_ID] * 3
    assert ctx.state is GroupState.EMPTY


def test_s15_not_a_moment_before() -> None:
    ctx = Context()
    leader = ctx.two_step_join(session_ms=5000, rebalance_ms=1000)
    ctx.advance(INITIAL_DELAY_MS)
    assert leader.code == ErrorCode.NONE
    ctx.advance(999)
    assert ctx.members == [leader.member_id]
    ctx.advance(1)
    assert ctx.members == []


def test_a_follower_that_never_syncs_is_evicted_from_a_stable_group() -> None:
    ctx = Context()
    options = {"session_ms": 5000, "rebalance_ms": 1000}
    leader, follower = completing_pair(ctx, **options)
    ctx.sync(leader, {})
    assert ctx.state is GroupState.STABLE
    ctx.advance(1000)
    assert ctx.members == [leader.member_id]
    assert ctx.heartbeat(leader).code == ErrorCode.REBALANCE_IN_PROGRESS
    assert ctx.heartbeat(follower).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_s18_a_sync_after_the_leaders_counts_as_well() -> None:
    ctx = Context()
    leader, follower = completing_pair(ctx, session_ms=5000, rebalance_ms=1000)
    ctx.sync(leader, {})
    assert ctx.state is GroupState.STABLE
    assert ctx.sync(follower).code == ErrorCode.NONE
    ctx.advance(1001)
    assert ctx.members == [leader.member_id, follower.member_id]


def test_s18_nobody_is_evicted_when_all_have_synced() -> None:
    ctx = Context()
    joins = [ctx.two_step_join(session_ms=5000, rebalance_ms=1000) for _ in range(3)]
    ctx.advance(3 * INITIAL_DELAY_MS + 1)
    syncs = [ctx.sync(join) for join in joins[1:]] + [ctx.sync(joins[0], {})]
    assert [sync.code for sync in syncs] == [ErrorCode.NONE] * 3
    for _ in range(3):
        ctx.advance(700)
        assert [ctx.heartbeat(join).code for join in joins] == [ErrorCode.NONE] * 3
    assert ctx.state is GroupState.STABLE
