"""The expiry of offsets, and of a group with its last offset (Kafka 2.8.2 and later)."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.config import parse_config
from group_coordinator.coordinator.group.offset_deletion import next_expiry
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import OffsetCommitPartition
from group_coordinator.schemas.records import GROUP_METADATA, CoordinatorRecord, GroupMetadataValue
from tests.context import GROUP_ID, TWO_STEP, Call, Context, subscription

MINUTE = 60_000
RETENTION = 60 * MINUTE
FOO = ("foo", 0)
BAR = ("bar", 0)


def context() -> Context:
    """Return a coordinator that keeps offsets for an hour, and has no session limit."""
    return Context(
        offsets_retention_minutes=60, group_max_session_timeout_ms=2**31 - 1, group_max_size=100
    )


def immortal(ctx: Context, **options: object) -> Call:
    """Return a Stable group of one member that needs no heartbeats."""
    return ctx.stable_group(session_ms=2**31 - 1, **options)


def tombstones(ctx: Context) -> list[tuple[str | None, int | None]]:
    """Return topic and partition of the tombstones in the log; (None, None) is the group's."""
    return [
        (record.topic, record.topic_partition)
        for record in ctx.log
        if record.offset_commit is None and record.group_metadata is None
    ]


# --- a simple group: each offset by its own commit ------------------------------------------------


def test_e01_an_explicit_retention_counts_for_its_own_offset() -> None:
    ctx = context()
    ctx.commit({FOO: 1}, retention_ms=1)
    ctx.commit({BAR: 2}, retention_ms=3)
    ctx.advance(2)
    ctx.cleanup()
    assert ctx.fetched() == {BAR: 2}
    assert ctx.state is GroupState.EMPTY


def test_e02_a_group_with_offsets_only_goes_with_them_and_needs_no_tombstone_itself() -> None:
    ctx = context()
    ctx.commit({FOO: 1, BAR: 2}, retention_ms=1)
    ctx.advance(1)
    ctx.cleanup()
    assert tombstones(ctx) == [FOO, BAR]
    assert ctx.group is None


@pytest.mark.parametrize(("age", "kept"), [(RETENTION - 1, True), (RETENTION, False)])
def test_an_offset_expires_when_its_retention_has_passed_since_its_commit(
    age: int, kept: bool
) -> None:
    ctx = context()
    ctx.advance(MINUTE)
    ctx.commit({FOO: 1})
    ctx.advance(age)
    ctx.cleanup()
    assert ctx.fetched() == ({FOO: 1} if kept else {})


def test_a_later_commit_counts_anew() -> None:
    ctx = context()
    ctx.commit({FOO: 1, BAR: 1})
    ctx.advance(RETENTION - 1)
    ctx.commit({FOO: 1})
    ctx.advance(1)
    ctx.cleanup()
    assert ctx.fetched() == {FOO: 1}


def test_an_explicit_commit_timestamp_is_what_the_retention_counts_from() -> None:
    ctx = context()
    ctx.advance(RETENTION)
    ctx.commit({FOO: OffsetCommitPartition(0, 1, commit_timestamp=0), BAR: 1})
    ctx.cleanup()
    assert ctx.fetched() == {BAR: 1}


# --- an emptied group: all offsets by the end of its membership -----------------------------------


def test_the_clock_of_an_emptied_group_starts_when_it_became_empty() -> None:
    ctx = context()
    leader = immortal(ctx)
    ctx.commit({FOO: 1}, leader)
    ctx.advance(2 * RETENTION)
    ctx.leave(leader)
    ctx.cleanup()
    ctx.advance(RETENTION - 1)
    ctx.cleanup()
    assert ctx.fetched() == {FOO: 1}
    ctx.advance(1)
    ctx.cleanup()
    assert ctx.group is None


def test_a_commit_to_an_emptied_group_does_not_lengthen_its_retention() -> None:
    ctx = context()
    leader = immortal(ctx)
    ctx.leave(leader)
    ctx.advance(RETENTION - 1)
    ctx.commit({FOO: 1})
    ctx.advance(1)
    ctx.cleanup()
    assert ctx.group is None


def test_an_explicit_retention_counts_in_an_emptied_group_too() -> None:
    ctx = context()
    leader = immortal(ctx)
    ctx.commit({FOO: 1}, leader, retention_ms=2 * RETENTION)
    ctx.commit({BAR: 1}, leader, retention_ms=1)
    ctx.leave(leader)
    ctx.advance(1)
    ctx.cleanup()
    assert ctx.fetched() == {FOO: 1}
    ctx.advance(RETENTION)
    ctx.cleanup()
    assert ctx.fetched() == {FOO: 1}


@pytest.mark.parametrize(("stamp", "kept"), [(-1, False), (RETENTION, True)])
def test_a_group_loaded_without_the_time_it_became_empty_goes_by_its_commits(
    stamp: int, kept: bool
) -> None:
    ctx = context()
    ctx.commit({FOO: 1})
    value = GroupMetadataValue("consumer", 3, None, None, stamp, ())
    ctx.load([*ctx.log, CoordinatorRecord(0, GROUP_METADATA, GROUP_ID, 0, 9, group_metadata=value)])
    ctx.advance(RETENTION)
    ctx.cleanup()
    assert ctx.fetched() == ({FOO: 1} if kept else {})


# --- a group with members -------------------------------------------------------------------------


def test_topics_that_a_stable_group_consumes_never_expire_the_others_do() -> None:
    ctx = context()
    leader = immortal(ctx, metadata=subscription("foo"))
    ctx.commit({FOO: 1, BAR: 1}, leader)
    ctx.advance(RETENTION - 1)
    ctx.cleanup()
    assert ctx.fetched() == {FOO: 1, BAR: 1}
    ctx.advance(1)
    ctx.cleanup()
    assert ctx.fetched() == {FOO: 1}
    ctx.advance(10 * RETENTION)
    ctx.cleanup()
    assert ctx.fetched() == {FOO: 1}


def test_an_explicit_retention_does_not_expire_a_topic_that_is_consumed() -> None:
    ctx = context()
    leader = immortal(ctx, metadata=subscription("foo"))
    ctx.commit({FOO: 1, BAR: 1}, leader, retention_ms=1)
    ctx.advance(1)
    ctx.cleanup()
    assert ctx.fetched() == {FOO: 1}


def test_nothing_expires_while_a_generation_is_made() -> None:
    ctx = context()
    long = 2**31 - 1
    leader = immortal(ctx, metadata=subscription("foo"), rebalance_ms=long)
    ctx.commit({FOO: 1, BAR: 1}, leader)
    ctx.commit({("bar", 1): 1}, leader, retention_ms=1)
    newcomer = ctx.join(metadata=subscription("foo"), session_ms=long, rebalance_ms=long)
    ctx.advance(2 * MINUTE)
    offsets = ctx.fetched()
    ctx.cleanup()
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert ctx.fetched() == offsets
    again = ctx.join(
        leader.member_id, metadata=subscription("foo"), session_ms=long, rebalance_ms=long
    )
    ctx.advance(RETENTION)
    ctx.cleanup()
    assert ctx.state is GroupState.COMPLETING_REBALANCE
    assert ctx.fetched() == offsets
    ctx.sync(again, {})
    ctx.cleanup()
    assert newcomer.code == ErrorCode.NONE
    assert ctx.fetched() == {FOO: 1}


def test_nothing_expires_while_an_empty_group_fills_again() -> None:
    ctx = context()
    leader = immortal(ctx)
    ctx.commit({FOO: 1}, leader)
    ctx.leave(leader)
    ctx.advance(RETENTION)
    ctx.join()
    ctx.cleanup()
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert ctx.fetched() == {FOO: 1}


@pytest.mark.parametrize(
    ("protocol_type", "metadata"),
    [
        pytest.param("connect", subscription("foo"), id="not-consumers"),
        pytest.param("consumer", b"?", id="subscription-unknown"),
    ],
)
def test_nothing_expires_where_it_is_not_known_what_is_consumed(
    protocol_type: str, metadata: bytes
) -> None:
    ctx = context()
    leader = immortal(ctx, protocol_type=protocol_type, metadata=metadata)
    ctx.commit({BAR: 1}, leader, retention_ms=1)
    ctx.advance(2 * RETENTION)
    ctx.cleanup()
    assert ctx.fetched() == {BAR: 1}


def test_a_group_with_members_outlives_its_offsets() -> None:
    ctx = context()
    leader = immortal(ctx, metadata=subscription("foo"))
    ctx.commit({BAR: 1}, leader)
    ctx.advance(RETENTION)
    ctx.cleanup()
    assert ctx.fetched() == {}
    assert ctx.state is GroupState.STABLE
    assert tombstones(ctx) == [BAR]


# --- the death of a group -------------------------------------------------------------------------


def test_e03_e04_an_empty_group_without_offsets_is_buried() -> None:
    ctx = context()
    value = GroupMetadataValue("consumer", 5, None, None, 0, ())
    ctx.load([CoordinatorRecord(0, GROUP_METADATA, GROUP_ID, 0, 0, group_metadata=value)])
    ctx.advance(MINUTE)
    ctx.cleanup()
    (tombstone,) = ctx.log
    assert tombstone.record_type == GROUP_METADATA
    assert (tombstone.group_id, tombstone.group_metadata) == (GROUP_ID, None)
    assert tombstone.timestamp == MINUTE
    assert ctx.group is None
    ((partition,),) = [topic.partitions for topic in ctx.fetch({"foo": [0]}).body.topics]
    assert partition.committed_offset == -1


def test_a_group_goes_in_the_run_that_takes_its_last_offset() -> None:
    ctx = context()
    leader = immortal(ctx)
    ctx.commit({FOO: 1, BAR: 1}, leader)
    ctx.leave(leader)
    ctx.advance(RETENTION)
    ctx.cleanup()
    assert tombstones(ctx) == [FOO, BAR, (None, None)]
    assert [record.reason for record in ctx.log[-3:]] == [
        "offsets expired",
        "offsets expired",
        "no members and no offsets are left",
    ]
    assert ctx.event_names()[-3:] == ["offsets_expired", "transition", "group_deleted"]


def test_a_group_whose_first_join_was_refused_is_buried_too() -> None:
    ctx = context()
    assert ctx.join(protocols=[]).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    ctx.cleanup()
    assert tombstones(ctx) == [(None, None)]
    assert ctx.group is None


def test_a_buried_group_leaves_nothing_to_load() -> None:
    ctx = context()
    leader = immortal(ctx)
    ctx.commit({FOO: 1}, leader)
    ctx.leave(leader)
    ctx.advance(RETENTION)
    ctx.cleanup()
    ctx.load()
    assert ctx.group is None


def test_the_generation_begins_anew_after_death() -> None:
    ctx = context()
    ctx.leave(immortal(ctx))
    ctx.cleanup()
    assert ctx.group is None
    assert immortal(ctx).generation == 1


def test_a_pending_member_does_not_keep_a_group() -> None:
    ctx = context()
    pending = ctx.join(version=TWO_STEP)
    ctx.cleanup()
    assert ctx.group is None
    late = ctx.join(pending.member_id, version=TWO_STEP)
    assert late.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_e08_the_audit_log_tells_of_expired_offsets_only_if_there_were_any() -> None:
    ctx = context()
    ctx.commit({FOO: 1, BAR: 1})
    ctx.cleanup()
    assert "offsets_expired" not in ctx.event_names()
    ctx.advance(RETENTION)
    ctx.cleanup()
    (event,) = [event for event in ctx.events if event.event == "offsets_expired"]
    assert event.reason == "2 offsets past their retention: foo-0, bar-0"


def test_tombstones_that_the_log_does_not_take_are_written_by_the_next_run() -> None:
    ctx = context()
    leader = immortal(ctx)
    ctx.commit({FOO: 1}, leader)
    ctx.leave(leader)
    ctx.advance(RETENTION)
    ctx.log_refuses = True
    ctx.cleanup()
    assert ctx.fetched() == {FOO: 1}
    assert "offsets_expired" not in ctx.event_names()
    ctx.log_refuses = False
    ctx.cleanup()
    assert tombstones(ctx) == [FOO, (None, None)]
    assert ctx.group is None


def test_more_offsets_than_fit_into_one_batch_expire() -> None:
    ctx = Context(offsets_retention_minutes=1, max_message_bytes=1000)
    for index in range(50):
        ctx.commit({("foo", index): 1})
    ctx.advance(MINUTE)
    ctx.cleanup()
    assert len(tombstones(ctx)) == 50
    assert ctx.group is None


# --- figures --------------------------------------------------------------------------------------


def test_x02_the_longest_retention_does_not_overflow() -> None:
    config = parse_config({"offsets.retention.minutes": 2**31 - 1})
    assert config.offsets_retention_ms == (2**31 - 1) * 60_000
    ctx = Context(offsets_retention_minutes=2**31 - 1)
    ctx.commit({FOO: 1})
    ctx.advance(2**40)
    ctx.cleanup()
    assert ctx.fetched() == {FOO: 1}


def test_next_expiry_is_when_a_run_would_first_find_something() -> None:
    ctx = context()
    ctx.commit({FOO: 1})
    ctx.advance(MINUTE)
    ctx.commit({BAR: 1})
    assert ctx.group is not None
    assert next_expiry(ctx.group, ctx.config) == RETENTION
    ctx.commit({("foo", 1): 1}, retention_ms=5)
    assert next_expiry(ctx.group, ctx.config) == MINUTE + 5


def test_an_offset_of_the_last_time_never_expires() -> None:
    """Its expiry is after the maximum time of Spark's timers."""
    ctx = context()
    ctx.commit({FOO: OffsetCommitPartition(0, 1, commit_timestamp=2**63 - 1)})
    assert ctx.group is not None
    assert next_expiry(ctx.group, ctx.config) is None


def test_next_expiry_is_never_while_nothing_may_expire() -> None:
    ctx = context()
    leader = immortal(ctx, metadata=subscription("foo"))
    ctx.commit({FOO: 1}, leader)
    assert ctx.group is not None
    assert next_expiry(ctx.group, ctx.config) is None
    ctx.commit({BAR: 1}, leader)
    assert next_expiry(ctx.group, ctx.config) == ctx.now + RETENTION
    ctx.join()
    assert next_expiry(ctx.group, ctx.config) is None
