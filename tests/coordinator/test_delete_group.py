"""DeleteGroups (KIP-229): an Empty group is deleted, with all its offsets."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import DeleteGroupsRequest
from tests.context import NOT_OWNED, Context, committed

# K02, a null group id, is not here: an event without one is rejected before it reaches a group.


def emptied_group() -> Context:
    """Return a group with two committed offsets; its only member has left."""
    ctx = Context()
    member = ctx.stable_group()
    assert ctx.commit({("orders", 0): 5, ("orders", 1): 6}, member).code == ErrorCode.NONE
    ctx.leave(member)
    assert ctx.state is GroupState.EMPTY
    return ctx


def test_k01_a_stable_group_is_not_deleted() -> None:
    ctx = Context()
    ctx.stable_group()
    assert ctx.delete_group().code == ErrorCode.NON_EMPTY_GROUP
    assert ctx.state is GroupState.STABLE


def test_k01_a_rebalancing_group_is_not_deleted() -> None:
    ctx = Context()
    join = ctx.join()
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert ctx.delete_group().code == ErrorCode.NON_EMPTY_GROUP
    ctx.advance(51)
    assert ctx.state is GroupState.COMPLETING_REBALANCE
    assert ctx.delete_group().code == ErrorCode.NON_EMPTY_GROUP
    assert ctx.members == [join.member_id]


@pytest.mark.parametrize("code", NOT_OWNED, ids=["k03", "x01"])
def test_k03_another_broker_coordinates_the_group(code: ErrorCode) -> None:
    ctx = emptied_group()
    ctx.ownership = code
    assert ctx.delete_group().code == code
    assert ctx.state is GroupState.EMPTY


def test_k04_an_empty_group_is_deleted() -> None:
    ctx = Context()
    ctx.leave(ctx.stable_group())
    assert ctx.delete_group().code == ErrorCode.NONE
    assert ctx.group is None
    assert ctx.log[-1].record_type == "group_metadata"
    assert ctx.log[-1].group_metadata is None
    assert ctx.event_names()[-2:] == ["transition", "group_deleted"]


def test_k05_its_offsets_go_with_it() -> None:
    ctx = emptied_group()
    before = len(ctx.log)
    delete = ctx.delete_group()
    assert delete.code == ErrorCode.NONE
    assert ctx.describe().body.state == "Dead"
    assert ctx.fetched() == {}
    tombstones = ctx.log[before:]
    assert [(r.record_type, r.topic, r.topic_partition) for r in tombstones] == [
        ("offset_commit", "orders", 0),
        ("offset_commit", "orders", 1),
        ("group_metadata", None, None),
    ]
    assert all(r.offset_commit is None and r.group_metadata is None for r in tombstones)
    assert {r.request_id for r in tombstones} == {delete.request.request_id}


def test_nothing_of_it_comes_back() -> None:
    ctx = emptied_group()
    ctx.delete_group()
    ctx.load()
    assert ctx.group is None


def test_the_next_group_of_that_name_begins_at_generation_one() -> None:
    ctx = emptied_group()
    assert ctx.group.generation_id == 2
    ctx.delete_group()
    assert ctx.dynamic_join().generation == 1


def test_a_simple_group_has_no_record_to_bury() -> None:
    ctx = Context()
    ctx.commit({("orders", 0): 5})
    assert ctx.delete_group().code == ErrorCode.NONE
    assert [r.record_type for r in ctx.log] == ["offset_commit", "offset_commit"]
    assert ctx.log[-1].offset_commit is None


def test_a_simple_group_that_had_a_member_has_a_record_to_bury() -> None:
    """Its record was written when it became empty, although no leader ever synced."""
    ctx = Context()
    ctx.commit({("orders", 0): 5})
    ctx.leave(ctx.dynamic_join())
    assert ctx.state is GroupState.EMPTY
    assert ctx.delete_group().code == ErrorCode.NONE
    assert [r.record_type for r in ctx.log[-2:]] == ["offset_commit", "group_metadata"]
    ctx.load()
    assert ctx.group is None


def test_f05_the_empty_group_id_can_be_deleted() -> None:
    ctx = Context(group_id="")
    ctx.commit({("orders", 0): 5})
    assert ctx.delete_group().code == ErrorCode.NONE
    assert ctx.fetch({"orders": [0]}).body.topics[0].partitions[0].committed_offset == -1


def test_an_absent_group_is_not_found() -> None:
    ctx = Context()
    assert ctx.delete_group().code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_dead_group_is_not_found() -> None:
    ctx = emptied_group()
    ctx.group.transition_to(GroupState.DEAD, ctx.now)
    assert ctx.delete_group().code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("force", [True, False, None])
def test_force_is_refused(force: bool | None) -> None:
    """It would remove members, and there is no defined response to them yet."""
    ctx = emptied_group()
    call = ctx.send("delete_groups", DeleteGroupsRequest(force))
    if force:
        assert call.code == ErrorCode.INVALID_REQUEST
        assert call.response.error_message == "force is not supported"
        assert ctx.state is GroupState.EMPTY
    else:
        assert call.code == ErrorCode.NONE
        assert ctx.group is None


def test_a_group_whose_tombstones_cannot_be_written_stays() -> None:
    """Otherwise the next coordinator would load its offsets again."""
    ctx = emptied_group()
    logged = len(ctx.log)
    ctx.log_refuses = True
    assert ctx.delete_group().code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert ctx.state is GroupState.EMPTY
    assert len(committed(ctx.group)) == 2
    assert len(ctx.log) == logged
    ctx.log_refuses = False
    assert ctx.delete_group().code == ErrorCode.NONE
