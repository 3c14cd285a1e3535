"""OffsetDelete: committed offsets of topics that the group does not consume."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from tests.context import GROUP_ID, Context, subscription


def test_n01_there_is_no_such_group() -> None:
    deletion = Context().delete_offsets({"foo": [0]})
    assert deletion.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert deletion.body.topics == ()


def test_n02_a_dead_group_is_no_group() -> None:
    ctx = Context()
    ctx.group = ClassicGroup(GROUP_ID, state=GroupState.DEAD)
    assert ctx.delete_offsets({"foo": [0]}).code == ErrorCode.GROUP_ID_NOT_FOUND


def test_n03_a_group_of_another_protocol_with_members_keeps_its_offsets() -> None:
    ctx = Context()
    leader = ctx.stable_group(protocol_type="My Protocol")
    ctx.commit({("foo", 0): 1}, leader)
    deletion = ctx.delete_offsets({"foo": [0]})
    assert deletion.code == ErrorCode.NON_EMPTY_GROUP
    assert deletion.body.topics == ()
    assert ctx.fetched() == {("foo", 0): 1}


def test_n03_nor_while_its_first_rebalance_runs_though_everybody_has_left() -> None:
    ctx = Context()
    ctx.commit({("foo", 0): 1})
    ctx.leave(ctx.two_step_join(protocol_type="My Protocol"))
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert ctx.delete_offsets({"foo": [0]}).code == ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize(
    "protocol_type",
    [pytest.param("My Protocol", id="n04"), pytest.param("consumer", id="n05")],
)
def test_n04_n05_offsets_of_an_empty_group_go_and_those_not_named_stay(
    protocol_type: str,
) -> None:
    ctx = Context()
    leader = ctx.stable_group(protocol_type=protocol_type, metadata=subscription("foo"))
    ctx.commit({("foo", 0): 1, ("foo", 1): 2}, leader)
    ctx.leave(leader)
    deletion = ctx.delete_offsets({"foo": [0]})
    assert deletion.code == ErrorCode.NONE
    assert deletion.partition_codes == [ErrorCode.NONE]
    assert ctx.fetched() == {("foo", 1): 2}


def test_offsets_of_a_simple_group_go() -> None:
    ctx = Context()
    ctx.commit({("foo", 0): 1})
    assert ctx.delete_offsets({"foo": [0]}).partition_codes == [ErrorCode.NONE]
    assert ctx.fetched() == {}
    assert ctx.state is GroupState.EMPTY


def test_a_deletion_is_a_tombstone_and_a_line_in_the_audit_log() -> None:
    ctx = Context()
    ctx.commit({("foo", 0): 1})
    deletion = ctx.delete_offsets({"foo": [0]})
    tombstone = ctx.log[-1]
    assert (tombstone.topic, tombstone.topic_partition, tombstone.offset_commit) == (
        "foo",
        0,
        None,
    )
    assert tombstone.reason == "offset deleted by request"
    assert tombstone.request_id == deletion.request.request_id
    (event,) = [event for event in ctx.events if event.event == "offsets_deleted"]
    assert "foo-0" in (event.reason or "")


def test_what_was_never_committed_is_deleted_without_a_tombstone() -> None:
    ctx = Context()
    ctx.commit({("foo", 0): 1})
    logged = len(ctx.log)
    deletion = ctx.delete_offsets({"foo": [9], "bar": [0]})
    assert deletion.partition_codes == [ErrorCode.NONE, ErrorCode.NONE]
    assert len(ctx.log) == logged
    assert "offsets_deleted" not in ctx.event_names()


def test_a_topic_that_a_member_consumes_keeps_its_offsets() -> None:
    ctx = Context()
    leader = ctx.stable_group(metadata=subscription("foo"))
    ctx.commit({("foo", 0): 1, ("bar", 0): 2}, leader)
    deletion = ctx.delete_offsets({"foo": [0, 1], "bar": [0]})
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert deletion.code == ErrorCode.NONE
    assert deletion.partition_codes == [subscribed, subscribed, ErrorCode.NONE]
    assert ctx.fetched() == {("foo", 0): 1}


def test_the_subscription_of_any_member_counts() -> None:
    ctx = Context()
    one = ctx.join(metadata=subscription("foo"))
    other = ctx.join(metadata=subscription("bar"))
    ctx.advance(200)
    assert one.code == other.code == ErrorCode.NONE
    deletion = ctx.delete_offsets({"foo": [0], "bar": [0], "baz": [0]})
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert deletion.partition_codes == [subscribed, subscribed, ErrorCode.NONE]


@pytest.mark.parametrize("blob", [b"", b"\xff\xff", b"not a subscription"])
def test_whose_subscription_cannot_be_read_may_consume_anything(blob: bytes) -> None:
    ctx = Context()
    leader = ctx.stable_group(metadata=blob)
    ctx.commit({("foo", 0): 1}, leader)
    assert ctx.delete_offsets({"foo": [0]}).partition_codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_before_the_first_generation_the_subscription_is_not_known() -> None:
    ctx = Context()
    ctx.commit({("foo", 0): 1})
    ctx.two_step_join(metadata=subscription("bar"))
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert ctx.delete_offsets({"foo": [0]}).partition_codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_a_negative_partition_is_none() -> None:
    ctx = Context()
    ctx.commit({("foo", 0): 1})
    deletion = ctx.delete_offsets({"foo": [-1, 0]})
    assert deletion.partition_codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_a_deletion_that_the_log_does_not_take_deletes_nothing() -> None:
    ctx = Context()
    ctx.commit({("foo", 0): 1})
    ctx.log_refuses = True
    deletion = ctx.delete_offsets({"foo": [0]})
    assert deletion.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert deletion.body.topics == ()
    assert ctx.fetched() == {("foo", 0): 1}
    assert "offsets_deleted" not in ctx.event_names()
