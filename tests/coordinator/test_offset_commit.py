"""OffsetCommit: accepted commits, stored offsets, and the errors of refused ones."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.coordinator import GroupCoordinator, Node
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from group_coordinator.schemas.records import NO_LEADER_EPOCH, NO_TIMESTAMP, OFFSET_COMMIT
from tests.context import GROUP_ID, SESSION_MS, Call, Context, committed, is_simple

FOO = ("foo", 0)
BAR = ("bar", 1)


def annotated(index: int, metadata: str | None) -> OffsetCommitPartition:
    """Return an offset to commit with metadata."""
    return OffsetCommitPartition(index, 42, committed_metadata=metadata)


# --- accepted and refused commits -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (2, ErrorCode.ILLEGAL_GENERATION),
        (8, ErrorCode.ILLEGAL_GENERATION),
        (9, ErrorCode.GROUP_ID_NOT_FOUND),
        (None, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_c01_a_generation_of_a_group_that_is_not_there(
    version: int | None, code: ErrorCode
) -> None:
    ctx = Context()
    commit = ctx.commit({FOO: 0, BAR: 0}, "member", generation=1, version=version)
    assert commit.partition_codes == [code, code]
    assert ctx.group is None
    assert ctx.log == []


def test_c02_without_a_generation_anyone_may_and_a_simple_group_comes_to_be() -> None:
    ctx = Context()
    assert ctx.commit({FOO: 0}).partition_codes == [ErrorCode.NONE]
    assert ctx.state is GroupState.EMPTY
    assert ctx.group is not None
    assert is_simple(ctx.group)
    assert [record.record_type for record in ctx.log] == [OFFSET_COMMIT]


def test_c03_offsets_of_an_emptied_group_may_be_set_from_outside() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    ctx.leave(leader)
    assert ctx.commit({FOO: 0}).code == ErrorCode.NONE
    assert ctx.fetched() == {FOO: 0}


def test_c04_no_commit_while_the_assignment_is_owed() -> None:
    ctx = Context()
    leader = ctx.dynamic_join()
    assert ctx.commit({FOO: 0}, leader).partition_codes == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_c05_strangers_are_told_so_even_then() -> None:
    ctx = Context()
    leader = ctx.dynamic_join()
    assert ctx.commit({FOO: 0}, "", generation=1).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ctx.commit({FOO: 0}, "stranger", generation=1).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ctx.commit({FOO: 0}, leader, generation=2).code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    ("member", "generation", "code"),
    [
        ("leader", 1, ErrorCode.NONE),
        ("leader", 0, ErrorCode.ILLEGAL_GENERATION),
        ("leader", 2, ErrorCode.ILLEGAL_GENERATION),
        ("leader", -1, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_a_member_of_the_generation_commits_in_a_stable_group(
    member: str, generation: int, code: ErrorCode
) -> None:
    ctx = Context()
    leader = ctx.stable_group()
    commit = ctx.commit({FOO: 5}, leader if member == "leader" else member, generation=generation)
    assert commit.code == code
    assert ctx.fetched() == ({FOO: 5} if code is ErrorCode.NONE else {})


def test_a_member_of_the_old_generation_commits_while_the_next_is_prepared() -> None:
    ctx = Context()
    leader, follower = ctx.stable_pair()
    ctx.join()
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert ctx.commit({FOO: 5}, leader).code == ErrorCode.NONE
    assert ctx.commit({FOO: 6}, follower, generation=2).code == ErrorCode.ILLEGAL_GENERATION
    assert ctx.fetched() == {FOO: 5}
    assert ctx.group is not None
    assert ctx.group.generation_id == 1


def test_c08_a_dead_group_is_to_be_looked_for_elsewhere() -> None:
    ctx = Context()
    ctx.group = ClassicGroup(GROUP_ID, state=GroupState.DEAD)
    assert ctx.commit({FOO: 0}).code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_c09_a_static_member_under_a_wrong_member_id_is_fenced() -> None:
    ctx = Context()
    leader, follower = ctx.static_pair()
    assert ctx.commit({FOO: 0}, leader, instance_id="leader").code == ErrorCode.NONE
    fenced = ctx.commit({FOO: 1}, "wrong", generation=1, instance_id="leader")
    assert fenced.partition_codes == [ErrorCode.FENCED_INSTANCE_ID]
    assert ctx.commit({FOO: 1}, follower, instance_id="leader").code == (
        ErrorCode.FENCED_INSTANCE_ID
    )
    unknown = ctx.commit({FOO: 1}, leader, instance_id="unknown")
    assert unknown.code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ctx.fetched() == {FOO: 0}


# --- sessions -------------------------------------------------------------------------------------


def test_c07_a_commit_keeps_the_session() -> None:
    ctx = Context()
    leader = ctx.stable_group(session_ms=1000)
    ctx.advance(500)
    assert ctx.commit({FOO: 0}, leader).code == ErrorCode.NONE
    ctx.advance(600)
    assert ctx.heartbeat(leader).code == ErrorCode.NONE


def test_c07_a_commit_keeps_the_session_while_the_next_generation_is_prepared() -> None:
    ctx = Context()
    leader = ctx.stable_group(rebalance_ms=10_000)
    ctx.join()
    ctx.advance(400)
    assert ctx.commit({FOO: 0}, leader).code == ErrorCode.NONE
    ctx.advance(400)
    assert ctx.heartbeat(leader).code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_refused_commit_keeps_nothing() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    ctx.advance(400)
    ctx.commit({FOO: 0}, leader, generation=0)
    ctx.advance(100)
    assert ctx.members == []


def test_a_commit_while_the_assignment_is_owed_keeps_nothing() -> None:
    ctx = Context()
    leader = ctx.dynamic_join(rebalance_ms=10_000)
    ctx.advance(SESSION_MS - 100)
    assert ctx.commit({FOO: 0}, leader).code == ErrorCode.REBALANCE_IN_PROGRESS
    ctx.advance(100)
    assert ctx.heartbeat(leader).code == ErrorCode.UNKNOWN_MEMBER_ID


# --- stored offsets -------------------------------------------------------------------------------


def test_q01_what_is_committed_is_stored_and_fetched() -> None:
    ctx = Context()
    ctx.advance(1234)
    offset = OffsetCommitPartition(0, 97, committed_leader_epoch=15, committed_metadata="metadata")
    commit = ctx.commit({FOO: offset})
    assert commit.code == ErrorCode.NONE
    (record,) = ctx.log
    assert (record.topic, record.topic_partition, record.timestamp) == ("foo", 0, 1234)
    assert record.request_id == commit.request.request_id
    value = record.offset_commit
    assert value is not None
    assert (value.offset, value.leader_epoch, value.metadata) == (97, 15, "metadata")
    assert (value.commit_timestamp, value.expire_timestamp) == (1234, NO_TIMESTAMP)
    assert committed(ctx.group) == {FOO: value}
    assert ctx.fetched() == {FOO: 97}


def test_what_is_not_said_is_stored_as_kafka_stores_it() -> None:
    ctx = Context()
    ctx.commit({FOO: OffsetCommitPartition(0, 1)})
    value = committed(ctx.group)[FOO]
    assert (value.leader_epoch, value.metadata) == (NO_LEADER_EPOCH, "")


@pytest.mark.parametrize(("said", "stored"), [(None, 700), (-1, 700), (30, 30), (0, 0)])
def test_an_explicit_commit_timestamp_replaces_the_present(said: int | None, stored: int) -> None:
    ctx = Context()
    ctx.advance(700)
    ctx.commit({FOO: OffsetCommitPartition(0, 1, commit_timestamp=said)})
    assert committed(ctx.group)[FOO].commit_timestamp == stored


@pytest.mark.parametrize(("said", "stored"), [(None, -1), (-1, -1), (0, 700), (300, 1000)])
def test_an_explicit_retention_says_when_the_offset_expires(said: int | None, stored: int) -> None:
    ctx = Context()
    ctx.advance(700)
    ctx.commit({FOO: 1}, retention_ms=said)
    assert committed(ctx.group)[FOO].expire_timestamp == stored


def test_a_retention_past_the_last_time_wraps_around_as_in_java() -> None:
    """Otherwise the record has no row in the offsets topic, and the batch could not be written."""
    ctx = Context()
    ctx.advance(700)
    ctx.commit({FOO: 1}, retention_ms=2**63 - 1)
    assert committed(ctx.group)[FOO].expire_timestamp == -(2**63) + 699


def test_the_later_commit_counts_even_if_it_goes_back() -> None:
    ctx = Context()
    ctx.commit({FOO: 100})
    ctx.commit({FOO: 3})
    assert ctx.fetched() == {FOO: 3}


def test_a_negative_offset_is_taken_as_kafka_takes_it() -> None:
    ctx = Context()
    assert ctx.commit({FOO: -5}).code == ErrorCode.NONE
    assert ctx.fetched() == {FOO: -5}


def test_nothing_asked_nothing_done() -> None:
    ctx = Context()
    commit = ctx.commit({})
    assert (commit.code, commit.body.topics) == (ErrorCode.NONE, ())
    assert ctx.group is None


# --- partitions -----------------------------------------------------------------------------------


def test_a_negative_partition_is_none() -> None:
    ctx = Context()
    commit = ctx.commit({("foo", -1): 1, FOO: 2})
    assert commit.partition_codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert ctx.fetched() == {FOO: 2}


def test_only_unknown_partitions_never_reach_the_group() -> None:
    ctx = Context()
    ctx.stable_group()
    commit = ctx.commit({("foo", -1): 1}, "stranger", generation=7)
    assert commit.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_where_topics_are_known_the_unknown_are_refused() -> None:
    ctx = Context()
    ctx.coordinator = GroupCoordinator(
        ctx.config,
        new_id=str,
        owner_of=lambda _partition: Node(0, "localhost", 9092),
        topics={"foo": 2},
    )
    commit = ctx.commit({("foo", 1): 1, ("foo", 2): 1, ("bar", 0): 1})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit.partition_codes == [ErrorCode.NONE, unknown, unknown]
    assert ctx.fetched() == {("foo", 1): 1}


# --- metadata -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        pytest.param("x" * 4096, ErrorCode.NONE, id="exactly"),
        pytest.param("x" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE, id="one-over"),
        pytest.param("é" * 4096, ErrorCode.NONE, id="8192-bytes-of-utf-8"),
        pytest.param("é" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE, id="one-over-accented"),
        pytest.param("😀" * 2048, ErrorCode.NONE, id="2048-pairs"),
        pytest.param("😀" * 2048 + "x", ErrorCode.OFFSET_METADATA_TOO_LARGE, id="pairs-and-one"),
        pytest.param("😀" * 4096, ErrorCode.OFFSET_METADATA_TOO_LARGE, id="4096-pairs"),
    ],
)
def test_metadata_is_measured_in_utf_16_units(metadata: str, code: ErrorCode) -> None:
    ctx = Context()
    assert ctx.commit({FOO: annotated(0, metadata)}).partition_codes == [code]


def test_q04_one_oversize_partition_does_not_keep_the_others_out() -> None:
    ctx = Context()
    commit = ctx.commit({FOO: annotated(0, "fine"), ("foo", 1): annotated(1, "x" * 4097)})
    assert commit.partition_codes == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert ctx.fetched() == {FOO: 42}


def test_q05_only_oversize_partitions_store_nothing_and_make_a_group_all_the_same() -> None:
    """Kafka creates a simple consumer's group before it checks the metadata."""
    ctx = Context()
    commit = ctx.commit({FOO: annotated(0, "x" * 4097)})
    assert commit.code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert ctx.log == []
    assert ctx.state is GroupState.EMPTY
    assert ctx.commit({FOO: 1}, "stranger", generation=1).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ctx.delete_offsets({"foo": [0]}).partition_codes == [ErrorCode.NONE]
    assert ctx.delete_group().code == ErrorCode.NONE
    assert (ctx.group, ctx.log) == (None, [])


def test_a_group_without_offsets_or_members_goes_at_the_next_cleanup() -> None:
    ctx = Context()
    ctx.commit({FOO: annotated(0, "x" * 4097)})
    ctx.cleanup()
    assert (ctx.group, ctx.log) == (None, [])


def test_a_commit_that_the_log_does_not_take_makes_no_group() -> None:
    ctx = Context()
    ctx.log_refuses = True
    assert ctx.commit({FOO: 1}).code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert ctx.group is None


def test_q06_an_oversize_partition_leaves_nothing_pending() -> None:
    ctx = Context()
    ctx.commit({FOO: annotated(0, "x" * 4097), BAR: annotated(1, "fine")})
    fetch = ctx.fetch({"foo": [0]}, require_stable=True)
    ((partition,),) = [topic.partitions for topic in fetch.body.topics]
    assert (partition.committed_offset, partition.error_code) == (-1, ErrorCode.NONE)


def test_a_partition_named_twice_has_two_codes() -> None:
    ctx = Context()
    topics = [annotated(0, "fine"), annotated(0, "x" * 4097)]
    call = twice(ctx, topics)
    assert call.partition_codes == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert ctx.fetched() == {FOO: 42}


def twice(ctx: Context, partitions: list[OffsetCommitPartition]) -> Call:
    topic = OffsetCommitTopic("foo", tuple(partitions))
    return ctx.send("offset_commit", OffsetCommitRequest(topics=(topic,), generation_id=-1))


# --- the top-level error code ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offsets", "code"),
    [
        ({FOO: annotated(0, "a"), BAR: annotated(1, "a")}, ErrorCode.NONE),
        ({FOO: annotated(0, "x" * 4097), BAR: annotated(1, "a")}, ErrorCode.NONE),
        (
            {FOO: annotated(0, "x" * 4097), BAR: annotated(1, "x" * 4097)},
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ),
        ({FOO: annotated(0, "x" * 4097), ("foo", -1): annotated(-1, "a")}, ErrorCode.NONE),
    ],
    ids=["none-failed", "one-failed", "all-failed-alike", "all-failed-differently"],
)
def test_the_requests_own_code_is_the_one_that_all_partitions_share(
    offsets: dict[tuple[str, int], OffsetCommitPartition], code: ErrorCode
) -> None:
    assert Context().commit(offsets).code == code


# --- the log refuses the commit -------------------------------------------------------------------


def test_q03_a_failed_append_is_told_and_nothing_is_visible() -> None:
    ctx = Context()
    ctx.log_refuses = True
    commit = ctx.commit({FOO: 1, BAR: 2})
    assert commit.partition_codes == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert commit.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert ctx.fetched() == {}
    assert ctx.group is None


def test_q03_what_was_committed_before_the_failure_stays() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    ctx.commit({FOO: 1}, leader)
    ctx.log_refuses = True
    ctx.commit({FOO: 2, BAR: 3}, leader)
    assert ctx.fetched() == {FOO: 1}


def test_q03_the_failure_is_the_code_of_every_partition_that_reached_the_group() -> None:
    ctx = Context()
    ctx.log_refuses = True
    offsets = {
        FOO: annotated(0, "fine"),
        ("foo", 1): annotated(1, "x" * 4097),
        ("foo", -1): annotated(-1, "fine"),
    }
    assert ctx.commit(offsets).partition_codes == [
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_commit_over_max_message_bytes_is_not_stored_in_part() -> None:
    ctx = Context(max_message_bytes=2000)
    small = ctx.commit({FOO: 1})
    assert small.code == ErrorCode.NONE
    large = ctx.commit({("foo", index): annotated(index, "x" * 100) for index in range(20)})
    assert large.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert ctx.fetched() == {FOO: 1}
