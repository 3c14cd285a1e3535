"""Requests to a coordinator with a partition that is loading, or belongs to another one."""

from __future__ import annotations

import msgspec
import pytest

from group_coordinator.schemas.errors import ErrorCode
from tests.context import NOT_OWNED, Call, Context


@pytest.fixture
def leader_and_ctx() -> tuple[Call, Context]:
    """Return a Stable group of one member, with a committed offset."""
    ctx = Context()
    leader = ctx.stable_group()
    ctx.commit({("foo", 0): 7}, leader)
    return leader, ctx


@pytest.fixture
def loading(leader_and_ctx: tuple[Call, Context]) -> tuple[Call, Context]:
    leader, ctx = leader_and_ctx
    ctx.ownership = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return leader, ctx


@pytest.fixture
def elsewhere(leader_and_ctx: tuple[Call, Context]) -> tuple[Call, Context]:
    leader, ctx = leader_and_ctx
    ctx.ownership = ErrorCode.NOT_COORDINATOR
    return leader, ctx


# --- loading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("instance_id", [None, "instance"])
def test_x01_a_join_waits_for_the_load(
    loading: tuple[Call, Context], instance_id: str | None
) -> None:
    _, ctx = loading
    join = ctx.join(instance_id=instance_id)
    assert join.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert join.body.generation_id == -1
    assert join.body.protocol_type is None


def test_x01_a_sync_waits_for_the_load(loading: tuple[Call, Context]) -> None:
    leader, ctx = loading
    # The Scala coordinator returned 27 to clients too old for 14; the Java one returns 14.
    assert ctx.sync(leader).code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_x01_a_commit_waits_for_the_load_partition_by_partition(
    loading: tuple[Call, Context],
) -> None:
    leader, ctx = loading
    commit = ctx.commit({("foo", 0): 8, ("foo", 1): 9, ("bar", 0): 10}, leader)
    assert commit.partition_codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
    assert commit.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("member_id", ["leader", "stranger"])
def test_x01_a_heartbeat_is_blindly_fine_while_loading(
    loading: tuple[Call, Context], member_id: str
) -> None:
    leader, ctx = loading
    assert ctx.heartbeat(leader if member_id == "leader" else member_id).code == ErrorCode.NONE


def test_x01_describe_delete_and_the_rest_wait_for_the_load(loading: tuple[Call, Context]) -> None:
    leader, ctx = loading
    calls = [
        ctx.describe(),
        ctx.delete_group(),
        ctx.leave(leader),
        ctx.fetch({"foo": [0]}),
        ctx.delete_offsets({"foo": [0]}),
    ]
    assert [call.code for call in calls] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 5
    assert calls[0].body.state == ""
    assert calls[3].body.topics == ()


def test_x01_nothing_that_arrives_while_loading_leaves_a_trace(
    loading: tuple[Call, Context],
) -> None:
    leader, ctx = loading
    before, logged = msgspec.msgpack.encode(ctx.group), len(ctx.log)
    ctx.advance(100)
    ctx.join()
    ctx.heartbeat(leader)
    ctx.commit({("foo", 0): 99}, leader)
    ctx.leave(leader)
    ctx.delete_group()
    assert msgspec.msgpack.encode(ctx.group) == before
    assert len(ctx.log) == logged


def test_x01_after_the_load_everything_is_answered_again(loading: tuple[Call, Context]) -> None:
    leader, ctx = loading
    ctx.ownership = ErrorCode.NONE
    assert ctx.describe().code == ErrorCode.NONE
    assert ctx.heartbeat(leader).code == ErrorCode.NONE


# --- not owned ------------------------------------------------------------------------------------


@pytest.mark.parametrize("instance_id", [None, "instance"])
def test_j01_a_join_is_sent_to_the_right_coordinator(
    elsewhere: tuple[Call, Context], instance_id: str | None
) -> None:
    _, ctx = elsewhere
    assert ctx.join(instance_id=instance_id).code == ErrorCode.NOT_COORDINATOR


def test_s01_a_sync_is_sent_to_the_right_coordinator(elsewhere: tuple[Call, Context]) -> None:
    leader, ctx = elsewhere
    assert ctx.sync(leader).code == ErrorCode.NOT_COORDINATOR


def test_h01_a_heartbeat_is_sent_to_the_right_coordinator(elsewhere: tuple[Call, Context]) -> None:
    leader, ctx = elsewhere
    assert ctx.heartbeat(leader).code == ErrorCode.NOT_COORDINATOR


def test_l01_a_leave_is_sent_to_the_right_coordinator(elsewhere: tuple[Call, Context]) -> None:
    leader, ctx = elsewhere
    leave = ctx.leave(leader)
    assert leave.code == ErrorCode.NOT_COORDINATOR
    assert leave.body.members == ()
    assert ctx.members == [leader.member_id]


def test_l01_a_leave_of_an_old_version_too(elsewhere: tuple[Call, Context]) -> None:
    leader, ctx = elsewhere
    leave = ctx.leave(leader, version=2)
    assert leave.code == ErrorCode.NOT_COORDINATOR
    assert leave.body.members is None


def test_q02_a_commit_is_sent_to_the_right_coordinator(elsewhere: tuple[Call, Context]) -> None:
    leader, ctx = elsewhere
    commit = ctx.commit({("foo", 0): 8, ("foo", 1): 8}, leader)
    assert commit.partition_codes == [ErrorCode.NOT_COORDINATOR] * 2
    ctx.ownership = ErrorCode.NONE
    assert ctx.fetched() == {("foo", 0): 7}


def test_f03_a_fetch_is_sent_to_the_right_coordinator(elsewhere: tuple[Call, Context]) -> None:
    _, ctx = elsewhere
    fetch = ctx.fetch({"foo": [0]})
    assert fetch.code == ErrorCode.NOT_COORDINATOR
    assert fetch.body.topics == ()


def test_b01_a_describe_is_sent_to_the_right_coordinator(elsewhere: tuple[Call, Context]) -> None:
    _, ctx = elsewhere
    describe = ctx.describe()
    assert describe.code == ErrorCode.NOT_COORDINATOR
    assert describe.body.state == ""
    assert describe.body.members == ()


def test_k03_a_deletion_is_sent_to_the_right_coordinator(elsewhere: tuple[Call, Context]) -> None:
    _, ctx = elsewhere
    assert ctx.delete_group().code == ErrorCode.NOT_COORDINATOR
    assert ctx.delete_offsets({"bar": [0]}).code == ErrorCode.NOT_COORDINATOR


# --- the order of checks --------------------------------------------------------------------------


@pytest.mark.parametrize("ownership", NOT_OWNED)
def test_a_request_that_is_wrong_in_itself_is_refused_before_ownership_is_looked_at(
    ownership: ErrorCode,
) -> None:
    ctx = Context(group_id="")
    ctx.ownership = ownership
    assert ctx.join().code == ErrorCode.INVALID_GROUP_ID
    assert ctx.heartbeat("member").code == ErrorCode.INVALID_GROUP_ID
    assert ctx.sync("member").code == ErrorCode.INVALID_GROUP_ID
    assert ctx.leave("member").code == ErrorCode.INVALID_GROUP_ID
    assert ctx.delete_offsets({"foo": [0]}).code == ErrorCode.INVALID_GROUP_ID
    assert ctx.join(session_ms=9, group_id="g").code == ErrorCode.INVALID_SESSION_TIMEOUT
    # Old clients store offsets under the empty id, which is a group like any other.
    busy = [ctx.commit({("foo", 0): 1}), ctx.fetch(), ctx.describe(), ctx.delete_group()]
    assert ErrorCode.INVALID_GROUP_ID not in [call.code for call in busy]
    assert ErrorCode.NONE not in [call.code for call in busy]
