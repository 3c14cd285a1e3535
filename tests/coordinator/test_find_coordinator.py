"""FindCoordinator: the node that decides a group's requests."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.group.coordinator import Node
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import FindCoordinatorRequest, FindCoordinatorResponse
from tests.context import NOT_OWNED, Call, Context


def find(ctx: Context, key_type: int | None = 0) -> Call:
    return ctx.send("find_coordinator", FindCoordinatorRequest(key_type))


@pytest.mark.parametrize("key_type", [0, None])
def test_the_node_that_owns_the_group_s_partition(key_type: int | None) -> None:
    ctx = Context(group_id="hello")
    ctx.node = Node(7, "coordinator.example", 9095)
    call = find(ctx, key_type)
    assert call.code == ErrorCode.NONE
    assert call.body == FindCoordinatorResponse(22, 7, "coordinator.example", 9095)


def test_the_partition_depends_on_how_many_there_are() -> None:
    ctx = Context(group_id="hello", offsets_topic_num_partitions=7)
    assert find(ctx).body.partition == partition_for("hello", 7) != 22


def test_a_partition_that_nobody_owns_now() -> None:
    ctx = Context(group_id="hello")
    ctx.node = None
    call = find(ctx)
    assert call.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert call.body == FindCoordinatorResponse(22, -1, "", -1)
    assert call.response.error_message == "no coordinator owns offsets partition 22 now"


@pytest.mark.parametrize("key_type", [1, 2, -1])
def test_only_groups_are_coordinated_here(key_type: int | None) -> None:
    """1 is the coordinator of a transaction, 2 of a share group."""
    call = find(Context(), key_type)
    assert call.code == ErrorCode.INVALID_REQUEST
    assert call.response.error_message.startswith(f"key_type {key_type} is not a group's")


@pytest.mark.parametrize("ownership", [ErrorCode.NONE, *NOT_OWNED])
def test_anyone_may_be_asked(ownership: ErrorCode) -> None:
    """Also a coordinator that does not have the group answers."""
    ctx = Context()
    ctx.ownership = ownership
    assert find(ctx).code == ErrorCode.NONE


def test_asking_makes_no_group() -> None:
    ctx = Context()
    find(ctx)
    assert ctx.group is None and not ctx.log and not ctx.events
