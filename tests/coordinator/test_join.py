"""JoinGroup of dynamic members: accepted joins, and immediate responses."""

from __future__ import annotations

from typing import Any

import pytest

from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from tests.context import (
    INITIAL_DELAY_MS,
    ONE_STEP,
    RANGE,
    SUPERSET,
    TWO_STEP,
    Call,
    Context,
)

LONG_SESSION_MS = 305_000


def in_completing_rebalance(ctx: Context) -> tuple[Call, Call]:
    """Return the joins of two members of generation 1 that have not synced, the leader's first."""
    leader, follower = ctx.join(), ctx.join()
    ctx.advance(2 * INITIAL_DELAY_MS)
    assert ctx.state is GroupState.COMPLETING_REBALANCE
    return leader, follower


# --- refused before any group is looked at ------------------------------------------------------


@pytest.mark.parametrize("instance_id", [None, "instance"])
def test_j01_another_broker_coordinates_the_group(instance_id: str | None) -> None:
    ctx = Context()
    ctx.ownership = ErrorCode.NOT_COORDINATOR
    join = ctx.join(instance_id=instance_id)
    assert join.code == ErrorCode.NOT_COORDINATOR
    assert join.body.member_id == "" and join.generation == -1
    assert ctx.group is None and not ctx.log


def test_j02_a_group_needs_a_name() -> None:
    ctx = Context(group_id="")
    join = ctx.join("somebody")
    assert join.code == ErrorCode.INVALID_GROUP_ID
    assert join.body.member_id == "somebody"


@pytest.mark.parametrize("session_ms", [9, 600_001], ids=["j03_too_small", "j04_too_large"])
def test_j03_j04_session_timeout_out_of_bounds(session_ms: int) -> None:
    ctx = Context()
    join = ctx.join("somebody", session_ms=session_ms)
    assert join.code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert join.body.member_id == "somebody"
    assert ctx.group is None


@pytest.mark.parametrize("session_ms", [10, 600_000])
def test_j03_j04_the_bounds_themselves_are_allowed(session_ms: int) -> None:
    ctx = Context()
    assert ctx.join(session_ms=session_ms).parked


def test_a_bad_session_timeout_is_told_before_a_wrong_coordinator() -> None:
    """Kafka checks the request itself before it looks for the partition."""
    ctx = Context()
    ctx.ownership = ErrorCode.NOT_COORDINATOR
    assert ctx.join(session_ms=1).code == ErrorCode.INVALID_SESSION_TIMEOUT


# --- unknown members ------------------------------------------------------------------------------


@pytest.mark.parametrize("instance_id", [None, "instance"])
def test_j05_a_member_id_in_a_group_that_does_not_exist(instance_id: str | None) -> None:
    ctx = Context()
    join = ctx.join("somebody", instance_id)
    assert join.code == ErrorCode.UNKNOWN_MEMBER_ID
    assert join.body.member_id == "somebody"
    assert ctx.group is None and not ctx.log


@pytest.mark.parametrize("synced", [False, True])
def test_j06_a_member_id_that_the_group_does_not_know(synced: bool) -> None:
    ctx = Context()
    member = ctx.stable_group() if synced else ctx.dynamic_join()
    state = ctx.state
    assert ctx.join("somebody").code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ctx.state is state
    assert ctx.members == [member.member_id]


@pytest.mark.parametrize("member_id", ["", "somebody"])
def test_j07_a_dead_group_sends_its_members_to_find_the_coordinator(member_id: str) -> None:
    """A group is dead only until it is forgotten; a join may still reach it."""
    ctx = Context()
    ctx.stable_group()
    ctx.group.transition_to(GroupState.DEAD, ctx.now)
    join = ctx.join(member_id)
    assert join.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert join.body.member_id == member_id


# --- the first member ---------------------------------------------------------------------------


def test_j08_the_first_member_leads_generation_one() -> None:
    ctx = Context()
    join = ctx.join(metadata=b"topics")
    assert join.parked
    ctx.advance(INITIAL_DELAY_MS)
    assert join.code == ErrorCode.NONE
    assert join.generation == 1
    assert join.body.leader == join.member_id
    assert join.body.protocol_name == "range"
    assert [(m.member_id, m.metadata) for m in join.body.members] == [(join.member_id, b"topics")]
    assert not join.body.skip_assignment


@pytest.mark.parametrize(
    ("client_id", "instance_id", "prefix"),
    [
        ("orders", None, "orders-"),
        ("", None, "-"),
        # A Java broker prints the missing client id.
        (None, None, "null-"),
        ("orders", "till-7", "till-7-"),
    ],
)
def test_member_ids_tell_the_client_or_the_instance(
    client_id: str | None, instance_id: str | None, prefix: str
) -> None:
    ctx = Context()
    join = ctx.join(instance_id=instance_id, client_id=client_id)
    ctx.advance(INITIAL_DELAY_MS)
    assert join.member_id.startswith(prefix)
    assert len(join.member_id) == len(prefix) + 36


def test_a_rebalance_timeout_left_out_is_the_session_timeout() -> None:
    ctx = Context()
    ctx.join(session_ms=700, rebalance_ms=None)
    assert ctx.group.rebalance_timeout_ms == 700


def test_the_log_knows_a_group_from_its_first_join_on() -> None:
    ctx = Context()
    ctx.advance(7)
    join = ctx.join()
    assert len(ctx.log) == 1
    record = ctx.log[0]
    assert (record.record_type, record.group_id) == ("group_metadata", "groupId")
    assert record.request_id == join.request.request_id
    assert record.group_metadata.generation == 0
    assert record.group_metadata.members == ()
    assert record.group_metadata.protocol_type == ""
    assert record.group_metadata.current_state_timestamp == 7


def test_a_group_that_cannot_be_logged_is_not_made() -> None:
    ctx = Context()
    ctx.log_refuses = True
    assert ctx.join().code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert ctx.group is None and not ctx.log and not ctx.events
    ctx.log_refuses = False
    assert ctx.join().parked


# --- protocols ----------------------------------------------------------------------------------


def test_j09_the_first_member_settles_the_protocol_type() -> None:
    ctx = Context()
    first = ctx.join()
    assert ctx.join(protocol_type="connect").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    ctx.advance(INITIAL_DELAY_MS)
    assert first.code == ErrorCode.NONE


def test_j10_members_must_share_a_protocol() -> None:
    ctx = Context()
    first = ctx.join(protocols=["range"])
    second = ctx.join(protocols=["roundrobin"])
    assert second.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    ctx.advance(INITIAL_DELAY_MS)
    assert first.code == ErrorCode.NONE
    assert ctx.members == [first.member_id]


def test_a_member_that_comes_back_must_share_a_protocol_too() -> None:
    ctx = Context()
    _, follower = ctx.stable_pair()
    join = ctx.join(follower.member_id, protocols=["sticky"])
    assert join.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join.body.member_id == follower.member_id
    assert ctx.state is GroupState.STABLE


@pytest.mark.parametrize("version", [ONE_STEP, TWO_STEP])
@pytest.mark.parametrize("instance_id", [None, "instance"])
@pytest.mark.parametrize(
    "asked",
    [{"protocol_type": ""}, {"protocols": []}],
    ids=["j11_empty_protocol_type", "j12_no_protocols"],
)
def test_j11_j12_an_empty_group_wants_to_know_the_protocol(
    asked: dict[str, Any], instance_id: str | None, version: int | None
) -> None:
    """The group exists from this request on, and accepts a valid member."""
    ctx = Context()
    join = ctx.join(instance_id=instance_id, version=version, **asked)
    assert join.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ctx.state is GroupState.EMPTY
    assert ctx.members == []
    assert ctx.join().parked


def test_an_emptied_group_takes_another_protocol_type() -> None:
    ctx = Context()
    ctx.leave(ctx.stable_group())
    assert ctx.group.protocol_type == "consumer"
    worker = ctx.join(protocol_type="connect", version=TWO_STEP, instance_id="worker")
    ctx.advance(INITIAL_DELAY_MS)
    assert worker.body.protocol_type == "connect"


# --- joining again ------------------------------------------------------------------------------


def test_j14_an_unchanged_follower_is_told_the_generation_again() -> None:
    """It may have missed the first response: nothing changes, and no rebalance begins."""
    ctx = Context()
    leader, follower = in_completing_rebalance(ctx)
    again = ctx.join(follower.member_id)
    assert again.code == ErrorCode.NONE
    assert again.generation == follower.generation == 1
    assert again.body.leader == leader.member_id
    assert again.body.members == ()
    assert ctx.state is GroupState.COMPLETING_REBALANCE


def test_an_unchanged_leader_is_told_the_members_again() -> None:
    """Before its sync a leader is answered like a follower, with the list of members."""
    ctx = Context()
    leader, _ = in_completing_rebalance(ctx)
    again = ctx.join(leader.member_id)
    assert again.body == leader.body
    assert len(again.body.members) == 2
    assert ctx.state is GroupState.COMPLETING_REBALANCE


def test_an_unchanged_follower_does_not_disturb_a_stable_group() -> None:
    ctx = Context()
    _, follower = ctx.stable_pair()
    again = ctx.join(follower.member_id)
    assert (again.code, again.generation) == (ErrorCode.NONE, 1)
    assert again.body.members == ()
    assert ctx.state is GroupState.STABLE
    assert ctx.sync(follower).assignment == b"follower"


def test_j15_an_unchanged_leader_forces_a_rebalance() -> None:
    """Partitions may have been added, so the leader must assign again."""
    ctx = Context()
    leader, follower = ctx.stable_pair()
    again = ctx.join(leader.member_id)
    assert again.parked
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert ctx.heartbeat(follower).code == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = ctx.join(follower.member_id)
    assert (again.code, rejoined.code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert again.generation == rejoined.generation == 2


def test_j16_generations_count_from_one() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    assert leader.generation == 1
    assert ctx.join(leader.member_id).generation == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"protocols": SUPERSET},
        {"protocols": RANGE, "metadata": b"other topics"},
    ],
    ids=["other protocols", "other metadata"],
)
@pytest.mark.parametrize("synced", [False, True])
def test_a_changed_follower_starts_a_rebalance(synced: bool, changed: dict[str, Any]) -> None:
    ctx = Context()
    leader, follower = ctx.stable_pair() if synced else in_completing_rebalance(ctx)
    again = ctx.join(follower.member_id, **changed)
    assert again.parked
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert ctx.join(leader.member_id).generation == 2
    assert again.generation == 2


def test_the_order_of_protocols_is_a_change() -> None:
    """The order is the member's preference, and decides its vote."""
    ctx = Context()
    _, follower = ctx.join(protocols=SUPERSET), ctx.join(protocols=SUPERSET)
    ctx.advance(2 * INITIAL_DELAY_MS)
    assert ctx.join(follower.member_id, protocols=SUPERSET).code == ErrorCode.NONE
    assert ctx.join(follower.member_id, protocols=reversed(SUPERSET)).parked


def test_new_timeouts_alone_are_no_change() -> None:
    """They take effect with the next join that changes something."""
    ctx = Context()
    _, follower = ctx.stable_pair()
    assert ctx.join(follower.member_id, session_ms=999, rebalance_ms=999).code == ErrorCode.NONE
    assert ctx.state is GroupState.STABLE
    assert ctx.group.rebalance_timeout_ms == 500


# --- the session of a new member ------------------------------------------------------------------


def test_j18_an_answered_member_is_timed_by_its_own_session() -> None:
    """Its session is longer than a new member's limit, which ends with the response."""
    ctx = Context()
    member = ctx.stable_group(session_ms=LONG_SESSION_MS)
    ctx.advance(300_100)
    assert ctx.members == [member.member_id]
    ctx.advance(LONG_SESSION_MS + 100)
    assert ctx.members == []


def test_j20_both_answered_members_are_timed_by_their_own_sessions() -> None:
    ctx = Context()
    options = {"session_ms": LONG_SESSION_MS, "rebalance_ms": 2 * LONG_SESSION_MS}
    leader, follower = ctx.join(**options), ctx.join(**options)
    ctx.advance(2 * INITIAL_DELAY_MS)
    ctx.sync(leader)
    ctx.sync(follower)
    assert ctx.state is GroupState.STABLE
    ctx.advance(300_100)
    assert len(ctx.members) == 2
    ctx.advance(LONG_SESSION_MS + 100)
    assert ctx.state is GroupState.EMPTY
    assert ctx.members == []


# --- the content of the response ------------------------------------------------------------------


def test_j24_an_error_tells_no_protocol() -> None:
    ctx = Context()
    join = ctx.join("fake", "instance", version=TWO_STEP)
    assert join.code == ErrorCode.UNKNOWN_MEMBER_ID
    assert join.body.protocol_type is None and join.body.protocol_name is None
    assert (join.generation, join.body.leader) == (-1, "")


@pytest.mark.parametrize(("version", "protocol_type"), [(7, "consumer"), (6, None)])
def test_j25_leader_and_follower_are_told_the_protocol_type(
    version: int | None, protocol_type: str | None
) -> None:
    """From version 7 on, which has the field (KIP-559)."""
    ctx = Context()
    leader = ctx.join(instance_id="a", version=version)
    follower = ctx.join(instance_id="b", version=version)
    ctx.advance(2 * INITIAL_DELAY_MS)
    for join in (leader, follower):
        assert join.code == ErrorCode.NONE
        assert join.body.protocol_type == protocol_type
        assert join.body.protocol_name == "range"


def test_an_old_version_has_no_null_protocol_name() -> None:
    ctx = Context()
    assert ctx.join("fake", version=6).body.protocol_name == ""
    assert ctx.join("fake", version=7).body.protocol_name is None
