"""OffsetFetch: the committed offsets, in any state of the group."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import OffsetCommitPartition, OffsetFetchPartition
from tests.context import GROUP_ID, Context


def test_f01_offset_epoch_and_metadata_come_back() -> None:
    ctx = Context()
    ctx.commit({("foo", 0): OffsetCommitPartition(0, 97, 15, committed_metadata="metadata")})
    fetch = ctx.fetch({"foo": [0]})
    assert fetch.code == ErrorCode.NONE
    ((partition,),) = [topic.partitions for topic in fetch.body.topics]
    assert partition == OffsetFetchPartition(0, 97, 15, "metadata", 0)


@pytest.mark.parametrize("exists", [True, False])
def test_f02_what_was_never_committed_is_minus_one_and_no_error(exists: bool) -> None:
    ctx = Context()
    if exists:
        ctx.commit({("foo", 0): 1})
    fetch = ctx.fetch({"foo": [7], "bar": [0]})
    assert fetch.code == ErrorCode.NONE
    assert [p for topic in fetch.body.topics for p in topic.partitions] == [
        OffsetFetchPartition(7, -1, -1, "", 0),
        OffsetFetchPartition(0, -1, -1, "", 0),
    ]


def test_f02_a_dead_group_has_nothing() -> None:
    ctx = Context()
    ctx.group = ClassicGroup(GROUP_ID, state=GroupState.DEAD)
    assert ctx.fetch().body.topics == ()


def test_f05_the_empty_group_id_is_a_group_to_those_that_store_offsets() -> None:
    ctx = Context(group_id="")
    assert ctx.commit({("foo", 0): 37}).code == ErrorCode.NONE
    assert ctx.fetched() == {("foo", 0): 37}
    describe = ctx.describe()
    assert (describe.code, describe.body.state) == (ErrorCode.NONE, "Empty")
    assert ctx.delete_group().code == ErrorCode.NONE
    ((partition,),) = [topic.partitions for topic in ctx.fetch({"foo": [0]}).body.topics]
    assert partition.committed_offset == -1


def test_all_offsets_are_asked_for_by_naming_none() -> None:
    ctx = Context()
    ctx.commit({("foo", 3): 1, ("bar", 0): 2, ("foo", 0): 3})
    fetch = ctx.fetch(None)
    assert [
        (topic.name, p.partition_index, p.committed_offset)
        for topic in fetch.body.topics
        for p in topic.partitions
    ] == [("bar", 0, 2), ("foo", 0, 3), ("foo", 3, 1)]


def test_no_topics_are_not_all_topics() -> None:
    ctx = Context()
    ctx.commit({("foo", 0): 1})
    assert ctx.fetch({}).body.topics == ()


def test_all_offsets_of_no_group_are_none() -> None:
    fetch = Context().fetch(None)
    assert (fetch.code, fetch.body.topics) == (ErrorCode.NONE, ())


def test_partitions_are_answered_in_the_order_asked() -> None:
    ctx = Context()
    ctx.commit({("foo", 0): 10, ("foo", 1): 11})
    (topic,) = ctx.fetch({"foo": [1, 5, 0]}).body.topics
    assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [
        (1, 11),
        (5, -1),
        (0, 10),
    ]


def test_below_version_5_there_is_no_leader_epoch() -> None:
    ctx = Context()
    ctx.commit({("foo", 0): OffsetCommitPartition(0, 97, 15)})
    (topic,) = ctx.fetch({"foo": [0, 1]}, version=4).body.topics
    assert [p.committed_leader_epoch for p in topic.partitions] == [None, None]
    (topic,) = ctx.fetch({"foo": [0, 1]}, version=5).body.topics
    assert [p.committed_leader_epoch for p in topic.partitions] == [15, -1]


def test_offsets_are_answered_in_every_state() -> None:
    ctx = Context()
    ctx.commit({("foo", 0): 1})
    seen = [ctx.state]
    leader = ctx.two_step_join()
    seen.append(ctx.state)
    assert ctx.fetched() == {("foo", 0): 1}
    ctx.advance(100)
    seen.append(ctx.state)
    assert ctx.fetched() == {("foo", 0): 1}
    ctx.sync(leader, {})
    seen.append(ctx.state)
    assert ctx.fetched() == {("foo", 0): 1}
    assert seen == [
        GroupState.EMPTY,
        GroupState.PREPARING_REBALANCE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
    ]
