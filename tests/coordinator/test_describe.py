"""DescribeGroups: the description of a group in each state."""

from __future__ import annotations

import pytest

from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import DescribeGroupsResponse
from tests.context import INITIAL_DELAY_MS, NOT_OWNED, Context

NOTHING = DescribeGroupsResponse()


@pytest.mark.parametrize("code", NOT_OWNED, ids=["b01", "x01"])
def test_b01_another_broker_coordinates_the_group(code: ErrorCode) -> None:
    ctx = Context()
    ctx.stable_group()
    ctx.ownership = code
    call = ctx.describe()
    assert call.code == code
    assert call.body == NOTHING


def test_b02_an_absent_group_is_dead() -> None:
    call = Context().describe(version=5)
    assert call.code == ErrorCode.NONE
    assert call.body == DescribeGroupsResponse(state="Dead")


@pytest.mark.parametrize("version", [6, None])
def test_b02_today_an_absent_group_is_an_error(version: int | None) -> None:
    """From version 6 on (KIP-1043)."""
    call = Context().describe(version=version)
    assert call.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert call.body == DescribeGroupsResponse(state="Dead")
    assert call.response.error_message == "Group groupId not found."


def test_b03_a_stable_group_of_a_dynamic_member() -> None:
    ctx = Context()
    join = ctx.join(metadata=b"topics", client_id="till", client_host="/10.0.0.7")
    ctx.advance(INITIAL_DELAY_MS)
    ctx.sync(join, {join.member_id: b"partitions"})
    body = ctx.describe().body
    assert (body.state, body.protocol_type, body.protocol_name) == ("Stable", "consumer", "range")
    [member] = body.members
    assert (member.member_id, member.group_instance_id) == (join.member_id, None)
    assert (member.client_id, member.client_host) == ("till", "/10.0.0.7")
    assert (member.metadata, member.assignment) == (b"topics", b"partitions")


def test_b04_a_stable_group_of_static_members() -> None:
    ctx = Context()
    leader, follower = ctx.static_pair()
    body = ctx.describe().body
    shown = {m.member_id: (m.group_instance_id, m.assignment) for m in body.members}
    assert shown == {
        leader.member_id: ("leader", b"leader"),
        follower.member_id: ("follower", b"follower"),
    }


def test_b05_a_rebalancing_group_tells_neither_protocol_nor_metadata() -> None:
    ctx = Context()
    join = ctx.join(metadata=b"topics")
    ctx.advance(INITIAL_DELAY_MS)
    body = ctx.describe().body
    assert (body.state, body.protocol_type) == ("CompletingRebalance", "consumer")
    assert body.protocol_name == ""
    [member] = body.members
    assert member.member_id == join.member_id
    assert (member.metadata, member.assignment) == (b"", b"")


def test_a_rebalancing_group_shows_the_assignments_that_still_hold() -> None:
    """Members use the old ones until they rejoin; Kafka's Java coordinator describes them."""
    ctx = Context()
    leader, _ = ctx.stable_pair()
    ctx.join(leader.member_id)
    body = ctx.describe().body
    assert (body.state, body.protocol_name) == ("PreparingRebalance", "")
    assert [m.assignment for m in body.members] == [b"leader", b"follower"]
    assert {m.metadata for m in body.members} == {b""}


def test_an_emptied_group_keeps_its_protocol_type() -> None:
    ctx = Context()
    ctx.leave(ctx.stable_group())
    assert ctx.describe().body == DescribeGroupsResponse(state="Empty", protocol_type="consumer")


def test_a_simple_group_has_no_protocol_type() -> None:
    ctx = Context()
    ctx.commit({("orders", 0): 5})
    assert ctx.describe().body == DescribeGroupsResponse(state="Empty")


def test_the_empty_group_id_can_be_described() -> None:
    """Part of F05: old clients commit without a group id."""
    ctx = Context(group_id="")
    ctx.commit({("orders", 0): 5})
    call = ctx.describe()
    assert (call.code, call.body.state) == (ErrorCode.NONE, "Empty")


def test_describing_changes_nothing() -> None:
    ctx = Context()
    ctx.stable_group()
    log, events = list(ctx.log), list(ctx.events)
    assert ctx.describe().body == ctx.describe().body
    assert (ctx.log, ctx.events) == (log, events)
