"""A group's records: their content, reason, request and size."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.config import parse_config
from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.coordinator.group.record_helpers import (
    group_value,
    new_group_value,
    replay,
    size_limit,
)
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import LeavingMember
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    OFFSET_COMMIT,
    CoordinatorRecord,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    binary_size,
)
from tests.context import GROUP_ID, SESSION_MS, Context, is_simple

# --- the story of a group, as its records tell it -------------------------------------------------


def test_every_record_says_why_it_was_written_and_at_whose_request() -> None:
    ctx = Context()
    join = ctx.join()
    ctx.advance(100)
    sync = ctx.sync(join, {})
    commit = ctx.commit({("foo", 0): 1}, join)
    leave = ctx.leave(LeavingMember(join.member_id, None, "bye"))
    reset = ctx.commit({("foo", 0): 0})
    delete = ctx.delete_group()
    story = [(record.record_type, record.reason, record.request_id) for record in ctx.log]
    assert story == [
        (GROUP_METADATA, "group created", join.request.request_id),
        (GROUP_METADATA, "leader synced", sync.request.request_id),
        (OFFSET_COMMIT, f"committed by {join.member_id}", commit.request.request_id),
        (
            GROUP_METADATA,
            f"group emptied: member {join.member_id}: client reason: bye",
            leave.request.request_id,
        ),
        (OFFSET_COMMIT, "committed without membership", reset.request.request_id),
        (OFFSET_COMMIT, "group deleted by request", delete.request.request_id),
        (GROUP_METADATA, "group deleted by request", delete.request.request_id),
    ]


def test_what_a_timer_writes_has_no_request() -> None:
    ctx = Context()
    join = ctx.stable_group()
    ctx.advance(SESSION_MS)
    record = ctx.log[-1]
    assert record.request_id is None
    assert record.reason == (
        f"group emptied: member {join.member_id}: session of 500 ms expired without a heartbeat"
    )


def test_all_records_of_a_group_go_to_its_partition() -> None:
    ctx = Context(group_id="another group", offsets_topic_num_partitions=7)
    join = ctx.stable_group()
    ctx.commit({("foo", 0): 1}, join)
    ctx.leave(join)
    assert {record.partition for record in ctx.log} == {partition_for("another group", 7)}
    assert {record.group_id for record in ctx.log} == {"another group"}


def test_heartbeats_and_fetches_write_nothing() -> None:
    ctx = Context()
    join = ctx.stable_group()
    records, events = len(ctx.log), len(ctx.events)
    ctx.heartbeat(join)
    ctx.sync(join)
    ctx.fetch()
    ctx.describe()
    ctx.join(join.member_id, protocols=["nothing in common"])
    assert (len(ctx.log), len(ctx.events)) == (records, events)


# --- storing groups -------------------------------------------------------------------------------


def test_w01_an_empty_group_reads_back() -> None:
    group = ClassicGroup(GROUP_ID, generation_id=27, protocol_type="consumer", state_timestamp=11)
    record = CoordinatorRecord(0, GROUP_METADATA, GROUP_ID, 0, group_metadata=group_value(group))
    again = replay(GROUP_ID, [record])
    assert again is not None
    assert (again.state, again.generation_id, again.protocol_type, again.state_timestamp) == (
        GroupState.EMPTY,
        27,
        "consumer",
        11,
    )


def test_w02_an_empty_simple_group_reads_back() -> None:
    record = CoordinatorRecord(
        0, GROUP_METADATA, GROUP_ID, 0, group_metadata=new_group_value(ClassicGroup(GROUP_ID))
    )
    again = replay(GROUP_ID, [record])
    assert again is not None
    assert (again.state, again.generation_id, again.protocol_type) == (GroupState.EMPTY, 0, None)
    assert is_simple(again)


def test_w03_a_group_with_members_is_stored_in_one_record() -> None:
    ctx = Context()
    leader, follower = ctx.join(metadata=b"L", session_ms=600), ctx.join(metadata=b"F")
    ctx.advance(101)
    logged = len(ctx.log)
    sync = ctx.sync(leader, {leader.member_id: b"1", follower.member_id: b"2"})
    assert sync.code == ErrorCode.NONE
    (record,) = ctx.log[logged:]
    assert record.group_metadata == GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=leader.member_id,
        # The record's state is that of the generation, which began with the responses to the joins.
        current_state_timestamp=100,
        members=(
            MemberMetadata(leader.member_id, None, "clientId", "clientHost", 500, 600, b"L", b"1"),
            MemberMetadata(
                follower.member_id, None, "clientId", "clientHost", 500, 500, b"F", b"2"
            ),
        ),
    )
    again = replay(GROUP_ID, ctx.log)
    assert again is not None
    assert again.state is GroupState.STABLE
    assert {m: one.assignment for m, one in again.members.items()} == {
        leader.member_id: b"1",
        follower.member_id: b"2",
    }


# --- sizes ----------------------------------------------------------------------------------------

OFFSET = OffsetCommitValue(1, -1, "metadata", 0)
MEMBER = MemberMetadata("member-1", None, "client", "/127.0.0.1", 1, 2, b"12345", b"1234567")
STATIC = MemberMetadata("member-2", "instance", "client", "/127.0.0.1", 1, 2, b"", b"")


@pytest.mark.parametrize(
    ("record", "size"),
    [
        # key: version 2, group 2+1, topic 2+3, partition 4
        pytest.param(
            CoordinatorRecord(0, OFFSET_COMMIT, "g", 0, topic="foo", topic_partition=0),
            14,
            id="offset-tombstone",
        ),
        # value: version 2, offset 8, epoch 4, metadata 2+8, timestamp 8
        pytest.param(
            CoordinatorRecord(
                0, OFFSET_COMMIT, "g", 0, topic="foo", topic_partition=0, offset_commit=OFFSET
            ),
            14 + 32,
            id="offset",
        ),
        # strings are counted in bytes of UTF-8
        pytest.param(
            CoordinatorRecord(0, OFFSET_COMMIT, "é", 0, topic="😀", topic_partition=0),
            16,
            id="utf-8",
        ),
        # key: version 2, group 2+1
        pytest.param(CoordinatorRecord(0, GROUP_METADATA, "g", 0), 5, id="group-tombstone"),
        # value: version 2, type 2+8, generation 4, no protocol 2, no leader 2, timestamp 8, count 4
        pytest.param(
            CoordinatorRecord(
                0,
                GROUP_METADATA,
                "g",
                0,
                group_metadata=GroupMetadataValue("consumer", 1, None, None, -1, ()),
            ),
            5 + 32,
            id="empty-group",
        ),
        # protocol 2+5, leader 2+8; first member: id 2+8, no instance 2, client 2+6, host 2+10,
        # timeouts 4+4, subscription 4+5, assignment 4+7; second: instance 2+8, no bytes
        pytest.param(
            CoordinatorRecord(
                0,
                GROUP_METADATA,
                "g",
                0,
                group_metadata=GroupMetadataValue(
                    "consumer", 1, "range", "member-1", -1, (MEMBER, STATIC)
                ),
            ),
            5 + 28 + 7 + 10 + (10 + 2 + 8 + 12 + 8 + 9 + 11) + (10 + 10 + 8 + 12 + 8 + 4 + 4),
            id="group-of-two",
        ),
    ],
)
def test_binary_size_is_that_of_kafkas_own_form(record: CoordinatorRecord, size: int) -> None:
    assert binary_size(record) == size


def test_the_log_refuses_what_is_over_max_message_bytes() -> None:
    record = CoordinatorRecord(
        0, OFFSET_COMMIT, "g", 0, topic="foo", topic_partition=0, offset_commit=OFFSET
    )
    batch_of_two = 61 + 2 * (21 + 46)
    fits = size_limit(parse_config({"max.message.bytes": batch_of_two}))
    too_small = size_limit(parse_config({"max.message.bytes": batch_of_two - 1}))
    assert fits([record, record]) is ErrorCode.NONE
    assert too_small([record, record]) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert too_small([record]) is ErrorCode.NONE
