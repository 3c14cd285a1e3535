"""Loading a group: the state that its records restore."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.record_helpers import replay
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    NO_TIMESTAMP,
    OFFSET_COMMIT,
    CoordinatorRecord,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from tests.context import GROUP_ID, Context, committed, is_simple, subscription

FOO, BAR = ("foo", 0), ("bar", 0)


def member(member_id: str = "member", **fields: object) -> MemberMetadata:
    """Return a member as it is stored."""
    return MemberMetadata(
        **{
            "member_id": member_id,
            "group_instance_id": None,
            "client_id": "clientId",
            "client_host": "clientHost",
            "rebalance_timeout": 2000,
            "session_timeout": 500,
            "subscription": b"",
            "assignment": b"",
            **fields,
        }
    )


def group(*members: MemberMetadata, generation: int = 935, **fields: object) -> CoordinatorRecord:
    """Return a group record: with members of "range", without members of no protocol."""
    value = GroupMetadataValue(
        **{
            "protocol_type": "consumer",
            "generation": generation,
            "protocol": "range" if members else None,
            "leader": members[0].member_id if members else None,
            "current_state_timestamp": 17,
            "members": members,
            **fields,
        }
    )
    return CoordinatorRecord(0, GROUP_METADATA, GROUP_ID, 0, group_metadata=value)


def offset(where: tuple[str, int], at: int | None, **fields: int) -> CoordinatorRecord:
    """Return an offset record, or its tombstone."""
    value = None if at is None else OffsetCommitValue(at, -1, "", 5, **fields)
    topic, partition = where
    return CoordinatorRecord(
        0, OFFSET_COMMIT, GROUP_ID, 0, topic=topic, topic_partition=partition, offset_commit=value
    )


GROUP_TOMBSTONE = CoordinatorRecord(0, GROUP_METADATA, GROUP_ID, 0)


def loaded(*records: CoordinatorRecord, **settings: object) -> Context:
    """Return a coordinator that has loaded these records, a second after its start."""
    ctx = Context(**settings)
    ctx.advance(1000)
    ctx.load(records)
    return ctx


def at(records: list[CoordinatorRecord], offsets: Mapping[int, int]) -> list[CoordinatorRecord]:
    """Return the records with log offsets by their index in the list."""
    names = CoordinatorRecord.__struct_fields__
    return [
        CoordinatorRecord(
            **{**{name: getattr(record, name) for name in names}, "log_offset": offsets[place]}
        )
        for place, record in enumerate(records)
    ]


# --- offsets --------------------------------------------------------------------------------------


def test_nothing_comes_of_nothing() -> None:
    assert loaded().group is None


def test_r01_offsets_without_a_group_are_an_empty_simple_group() -> None:
    ctx = loaded(offset(FOO, 15), offset(("foo", 1), 455), offset(BAR, 8992))
    assert ctx.state is GroupState.EMPTY
    assert ctx.group is not None
    assert is_simple(ctx.group)
    assert ctx.fetched() == {FOO: 15, ("foo", 1): 455, BAR: 8992}


def test_the_last_record_of_a_partition_counts() -> None:
    assert loaded(offset(FOO, 1), offset(FOO, 3), offset(FOO, 2)).fetched() == {FOO: 2}


def test_records_count_in_the_order_of_the_log_not_of_their_arrival() -> None:
    records = at([offset(FOO, 1), offset(FOO, 2), offset(FOO, 3)], {0: 12, 1: 30, 2: 21})
    assert loaded(*records).fetched() == {FOO: 2}


def test_r04_a_tombstone_takes_its_partition_alone() -> None:
    ctx = loaded(offset(FOO, 15), offset(BAR, 455), offset(FOO, None))
    assert ctx.fetched() == {BAR: 455}


def test_r04_only_tombstones_leave_nothing() -> None:
    assert loaded(offset(FOO, 1), offset(FOO, None)).group is None
    assert loaded(offset(FOO, None)).group is None


def test_r04_a_commit_after_a_tombstone_counts() -> None:
    assert loaded(offset(FOO, 1), offset(FOO, None), offset(FOO, 2)).fetched() == {FOO: 2}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"expire_timestamp": 4711}, id="r19-r20-explicit-retention"),
        pytest.param({}, id="r03-none"),
    ],
)
def test_r19_r20_the_expiry_that_was_asked_for_is_kept(value: dict[str, int]) -> None:
    ctx = loaded(offset(FOO, 1, **value))
    assert committed(ctx.group)[FOO].expire_timestamp == value.get("expire_timestamp", -1)


# --- the group ------------------------------------------------------------------------------------


def test_r02_a_group_without_members_is_empty_and_knows_its_protocol_type() -> None:
    ctx = loaded(offset(FOO, 15), group(generation=15))
    assert ctx.state is GroupState.EMPTY
    assert ctx.group is not None
    assert (ctx.group.generation_id, ctx.group.protocol_type) == (15, "consumer")
    assert (ctx.group.leader_id, ctx.group.protocol_name) == (None, None)
    assert ctx.fetched() == {FOO: 15}


def test_r03_a_group_with_members_is_stable() -> None:
    ctx = loaded(offset(FOO, 15), group(member(assignment=b"part")), offset(BAR, 8992))
    assert ctx.state is GroupState.STABLE
    found = ctx.group
    assert found is not None
    assert (found.generation_id, found.protocol_type, found.protocol_name) == (
        935,
        "consumer",
        "range",
    )
    assert (found.leader_id, ctx.members) == ("member", ["member"])
    assert found.state_timestamp == 17
    one = found.members["member"]
    assert (one.rebalance_timeout_ms, one.session_timeout_ms) == (2000, 500)
    assert (one.client_id, one.client_host, one.assignment) == ("clientId", "clientHost", b"part")
    assert ctx.fetched() == {FOO: 15, BAR: 8992}
    assert all(v.expire_timestamp == NO_TIMESTAMP for v in committed(found).values())


def test_r03_the_members_go_on_as_if_nothing_had_happened() -> None:
    ctx = loaded(group(member("one", assignment=b"first"), member("two", assignment=b"second")))
    assert ctx.heartbeat("one", 935).code == ErrorCode.NONE
    assert ctx.sync("two", generation=935).assignment == b"second"
    assert ctx.commit({FOO: 1}, "two", generation=935).code == ErrorCode.NONE
    assert ctx.join("two").generation == 935


def test_a_loaded_member_supports_only_the_protocol_that_was_chosen() -> None:
    ctx = loaded(group(member()))
    assert ctx.join(protocols=["roundrobin"]).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ctx.join(protocols=["roundrobin", "range"]).parked


def test_r05_a_tombstone_takes_the_group() -> None:
    ctx = loaded(group(member()), GROUP_TOMBSTONE)
    assert ctx.group is None


def test_r05_a_group_after_its_tombstone_is_a_new_one() -> None:
    ctx = loaded(group(member()), GROUP_TOMBSTONE, group(member("other"), generation=1))
    assert (ctx.members, ctx.state) == (["other"], GroupState.STABLE)


def test_offsets_after_a_groups_tombstone_are_a_simple_group() -> None:
    ctx = loaded(
        group(member(), generation=9), offset(FOO, 1), offset(FOO, None), GROUP_TOMBSTONE,
        offset(BAR, 2),
    )  # fmt: skip
    assert ctx.fetched() == {BAR: 2}
    assert ctx.group is not None
    assert is_simple(ctx.group)
    assert ctx.group.generation_id == 0


def test_the_last_group_record_counts() -> None:
    ctx = loaded(
        group(member("one"), member("two"), generation=1), group(member("two"), generation=2)
    )
    assert ctx.group is not None
    assert (ctx.members, ctx.group.leader_id, ctx.group.generation_id) == (["two"], "two", 2)


def test_r08_a_record_may_be_larger_than_any_buffer() -> None:
    ctx = loaded(group(member(assignment=b"x" * 6_000_000)))
    assert len(ctx.sync("member", generation=935).assignment) == 6_000_000


def test_r25_the_first_version_of_the_record_has_no_rebalance_timeout() -> None:
    ctx = loaded(group(member(rebalance_timeout=-1)))
    assert ctx.group is not None
    assert ctx.group.members["member"].rebalance_timeout_ms == 500


def test_r25_and_no_static_members() -> None:
    ctx = loaded(group(member()))
    assert ctx.group is not None
    assert ctx.group.static_members == {}
    assert not ctx.group.members["member"].is_static


def test_static_members_come_back_as_such() -> None:
    ctx = loaded(group(member("one", group_instance_id="instance"), member("two")))
    assert ctx.heartbeat("wrong", 935, instance_id="instance").code == ErrorCode.FENCED_INSTANCE_ID
    assert ctx.heartbeat("one", 935, instance_id="instance").code == ErrorCode.NONE


@pytest.mark.parametrize(("stored", "known"), [(-1, None), (0, 0), (17, 17)])
def test_r26_the_time_of_the_state_is_known_only_if_it_was_stored(
    stored: int, known: int | None
) -> None:
    ctx = loaded(group(current_state_timestamp=stored))
    assert ctx.group is not None
    assert ctx.group.state_timestamp == known


def test_the_leader_is_the_one_that_was_stored() -> None:
    ctx = loaded(group(member("one"), member("two"), leader="two"))
    assert ctx.group is not None
    assert ctx.group.leader_id == "two"


def test_a_leader_that_was_not_stored_is_the_first_member() -> None:
    ctx = loaded(group(member("one"), member("two"), leader=None))
    assert ctx.group is not None
    assert ctx.group.leader_id == "one"


def test_a_group_without_protocol_type_has_none() -> None:
    ctx = loaded(group(generation=0, protocol_type=""))
    assert ctx.group is not None
    assert ctx.group.protocol_type is None


# --- subscriptions --------------------------------------------------------------------------------


def test_r21_the_subscriptions_of_the_members_are_known() -> None:
    ctx = loaded(group(member(subscription=subscription("foo"))))
    assert ctx.group is not None
    assert ctx.group.subscribed_topics == ["foo"]


def test_r22_an_empty_group_is_known_to_consume_nothing() -> None:
    ctx = loaded(group())
    assert ctx.group is not None
    assert ctx.group.subscribed_topics == []


def test_r23_a_subscription_that_cannot_be_read_is_not_known() -> None:
    ctx = loaded(group(member(subscription=b"\x00")))
    assert ctx.state is GroupState.STABLE
    assert ctx.group is not None
    assert ctx.group.subscribed_topics is None


def test_a_group_of_another_protocol_type_is_not_known_to_consume_anything() -> None:
    ctx = loaded(group(member(subscription=subscription("foo")), protocol_type="connect"))
    assert ctx.group is not None
    assert ctx.group.subscribed_topics is None


# --- records of other kinds -----------------------------------------------------------------------


def unknown(
    key: bytes, value: bytes | None, kind: str = "member_metadata", at: int = 0
) -> CoordinatorRecord:
    """Return a record of an unknown kind; with value None it is a tombstone."""
    return CoordinatorRecord(0, kind, GROUP_ID, 0, at, key=key, value=value)


def test_r28_a_tombstone_of_an_unknown_kind_is_nothing() -> None:
    assert replay(GROUP_ID, [unknown(b"m", None)]) is None


def test_a_group_with_a_record_of_an_unknown_kind_is_known_by_its_kinds_alone() -> None:
    records = [unknown(b"m", b"", "z"), group(member()), offset(FOO, 1), unknown(b"m", b"", "a")]
    ctx = loaded(*records)
    assert ctx.group == ClassicGroup(GROUP_ID, unknown_kinds="a, z")
    assert [event.event for event in ctx.events] == ["loaded"]
    assert "records of the kind a, z, which" in str(ctx.events[0].reason)


def test_it_is_of_its_kind_until_the_last_such_record_is_deleted() -> None:
    two = [unknown(b"m1", b"1", at=1), unknown(b"m2", b"2", at=2), offset(FOO, 5)]
    one_left = [*two, unknown(b"m1", None, at=3)]
    assert loaded(*one_left).group == ClassicGroup(GROUP_ID, unknown_kinds="member_metadata")
    none_left = [*one_left, unknown(b"m2", None, at=4)]
    assert loaded(*none_left).fetched() == {FOO: 5}
    assert loaded(*none_left, unknown(b"m2", b"2", at=3)).fetched() == {FOO: 5}


COMMIT = OffsetCommitRequest(topics=(OffsetCommitTopic("t", (OffsetCommitPartition(0, 1),)),))
JOIN = JoinGroupRequest(session_timeout_ms=500, protocol_type="consumer", protocols=())


@pytest.mark.parametrize(
    ("api", "body", "code"),
    [
        ("join_group", JOIN, "INCONSISTENT_GROUP_PROTOCOL"),
        ("sync_group", SyncGroupRequest(1, "m"), "UNKNOWN_MEMBER_ID"),
        ("heartbeat", HeartbeatRequest(1, "m"), "UNKNOWN_MEMBER_ID"),
        ("leave_group", LeaveGroupRequest((LeavingMember("m"),)), "UNKNOWN_MEMBER_ID"),
        ("offset_commit", COMMIT, "GROUP_ID_NOT_FOUND"),
        ("offset_fetch", OffsetFetchRequest(), "GROUP_ID_NOT_FOUND"),
        ("describe_groups", DescribeGroupsRequest(), "GROUP_ID_NOT_FOUND"),
        ("delete_groups", DeleteGroupsRequest(), "NON_EMPTY_GROUP"),
        ("offset_delete", OffsetDeleteRequest(()), "GROUP_ID_NOT_FOUND"),
    ],
)
def test_every_request_to_a_group_of_an_unknown_kind_is_refused_by_name(
    api: str, body: object, code: str
) -> None:
    ctx = loaded(offset(FOO, 1), unknown(b"m", b"", "share_group"))
    before = ctx.group
    call = ctx.send(api, body, 4 if api == "sync_group" else None)
    assert call.response.error == code
    assert "share_group, which this release does not know" in str(call.response.error_message)
    assert (ctx.log, ctx.group) == ([], before)


def test_what_needs_no_group_is_answered_before_its_kind() -> None:
    ctx = loaded(unknown(b"m", b""))
    assert ctx.join(session_ms=1).code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_nothing_of_a_group_of_an_unknown_kind_expires() -> None:
    ctx = loaded(offset(FOO, 1), unknown(b"m", b""))
    ctx.advance(10**12)
    ctx.cleanup()
    assert ctx.log == []
    assert ctx.group is not None


def test_r29_tombstones_of_unknown_kinds_are_passed_over() -> None:
    unknown = CoordinatorRecord(0, "consumer_group_member_metadata", GROUP_ID, 0)
    ctx = loaded(unknown, offset(FOO, 1), unknown, group(member()), unknown)
    assert ctx.fetched() == {FOO: 1}
    assert ctx.members == ["member"]


# --- timers ---------------------------------------------------------------------------------------


def test_loaded_members_have_a_full_session_ahead() -> None:
    ctx = loaded(group(member("one"), member("two", session_timeout=800)))
    ctx.advance(499)
    assert ctx.members == ["one", "two"]
    ctx.advance(1)
    assert ctx.members == ["two"]
    ctx.advance(300)
    assert ctx.members == []
    assert ctx.state is GroupState.EMPTY


def test_a_loaded_group_that_is_over_capacity_rebalances() -> None:
    ctx = loaded(group(member("one"), member("two"), member("three")), group_max_size=2)
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert ctx.heartbeat("one", 935).code == ErrorCode.REBALANCE_IN_PROGRESS
    joins = [ctx.join(member_id) for member_id in ("one", "two", "three")]
    assert joins[2].code == ErrorCode.GROUP_MAX_SIZE_REACHED
    ctx.advance(2000)
    assert [join.generation for join in joins[:2]] == [936, 936]


def test_a_loaded_group_of_exactly_its_capacity_is_stable() -> None:
    ctx = loaded(group(member("one"), member("two")), group_max_size=2)
    assert ctx.state is GroupState.STABLE


# --- the audit log --------------------------------------------------------------------------------


def test_a_load_is_one_line_of_the_audit_log_and_no_record() -> None:
    ctx = loaded(offset(FOO, 1), group(member()))
    assert ctx.event_names() == ["loaded"]
    assert ctx.events[0].reason == "Stable with 1 members from the offsets topic"
    assert ctx.log == []
