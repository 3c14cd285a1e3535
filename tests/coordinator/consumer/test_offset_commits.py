"""Commits by hand and by themselves, and where a member starts to read."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.consumer.consumer_errors import (
    CommitFailedError,
    ConsumerError,
    CoordinatorTimeoutError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    NoOffsetForPartitionError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from group_coordinator.coordinator.consumer.consumer_settings import AutoOffsetReset
from group_coordinator.coordinator.consumer.events import CommitDone, RevokePartitions
from group_coordinator.coordinator.consumer.member_state import Generation, MemberState
from group_coordinator.coordinator.consumer.subscription_state import OffsetAndMetadata
from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode
from tests.coordinator.consumer.lone import BACKOFF_MS, HEARTBEAT_MS, REQUEST_MS, T0, T1, Lone

FIVE = {T0: OffsetAndMetadata(5, "note")}
RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
)
FAILED = (
    (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationError),
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError),
    (ErrorCode.OFFSET_METADATA_TOO_LARGE, OffsetMetadataTooLargeError),
    (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, ConsumerError),
    (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgressError),
    (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError),
    (ErrorCode.ILLEGAL_GENERATION, CommitFailedError),
    (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceIdError),
    (ErrorCode.UNKNOWN_SERVER_ERROR, ConsumerError),
)


def refind(one: Lone) -> None:
    """If the coordinator was lost, it is found again."""
    one.advance(BACKOFF_MS)
    for request in one.requests("find_coordinator"):
        one.answer(request, body=m.FindCoordinatorResponse(0, 1, "host", 9))
    one.advance(BACKOFF_MS)


# --- synchronous ----------------------------------------------------------------------------------


def test_a_commit_carries_the_membership() -> None:
    one = Lone(group_instance_id="one").member()
    commit = one.consumer.commit_sync(one.now, FIVE)
    body = one.sent("offset_commit").offset_commit
    assert body == m.OffsetCommitRequest(
        generation_id=1,
        member_id="member",
        group_instance_id="one",
        topics=(m.OffsetCommitTopic("t", (m.OffsetCommitPartition(0, 5, None, None, "note"),)),),
    )
    assert not commit.done
    one.answer_commit()
    assert commit.done
    commit.result()


@pytest.mark.parametrize("code", RETRIED, ids=lambda code: code.name)
def test_a_synchronous_commit_is_sent_again(code: ErrorCode) -> None:
    one = Lone().member()
    commit = one.consumer.commit_sync(one.now, FIVE)
    one.answer_commit(code)
    assert not commit.done
    refind(one)
    one.answer_commit()
    commit.result()


def test_it_is_sent_again_when_it_was_not_answered() -> None:
    one = Lone(session_timeout_ms=100_000).member()
    commit = one.consumer.commit_sync(one.now, FIVE)
    lost = one.sent("offset_commit")
    one.advance(REQUEST_MS)
    refind(one)
    assert len(one.requests("offset_commit")) == 2
    assert not one.answer(lost, body=m.OffsetCommitResponse())
    one.answer_commit()
    commit.result()


def test_it_ends_with_its_timeout() -> None:
    one = Lone().member()
    commit = one.consumer.commit_sync(one.now, FIVE, timeout_ms=250)
    one.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    one.advance(BACKOFF_MS)
    one.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    one.advance(149)
    assert not commit.done
    one.advance(1)
    with pytest.raises(CoordinatorTimeoutError, match="is the coordinator running"):
        commit.result()
    assert not one.requests("offset_commit")


@pytest.mark.parametrize(("code", "error"), FAILED, ids=lambda one: getattr(one, "name", ""))
def test_a_commit_that_cannot_succeed_fails(code: ErrorCode, error: type[ConsumerError]) -> None:
    one = Lone().member()
    commit = one.consumer.commit_sync(one.now, FIVE)
    one.answer_commit(code)
    with pytest.raises(error) as raised:
        commit.result()
    assert type(raised.value) is error and raised.value.code == code


def test_a_commit_in_a_rebalance_that_the_group_knows_of_makes_the_member_join_again() -> None:
    one = Lone().member()
    one.consumer.commit_sync(one.now, FIVE)
    one.answer_commit(ErrorCode.REBALANCE_IN_PROGRESS)
    assert one.consumer.is_rejoining
    assert one.consumer.generation.generation_id == 1


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "member")],
)
def test_a_commit_of_one_that_is_out_loses_the_generation(code: ErrorCode, member_id: str) -> None:
    one = Lone().member()
    one.consumer.commit_sync(one.now, FIVE)
    one.answer_commit(code)
    assert one.consumer.generation == Generation(member_id=member_id)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID],
    ids=lambda code: code.name,
)
def test_a_commit_of_an_older_generation_does_not_cost_the_newer_one(code: ErrorCode) -> None:
    for rejoined, error in ((False, RebalanceInProgressError), (True, CommitFailedError)):
        one = Lone().member()
        commit = one.consumer.commit_sync(one.now, FIVE)
        one.consumer.subscribe(["t", "u"])
        one.poll()
        one.answer_join(generation=2)
        if rejoined:
            one.answer_sync([T0])
            one.poll()
        one.answer_commit(code)
        assert type(commit.error) is error
        assert one.consumer.generation == Generation(2, "member", "range")


def test_while_the_member_joins_there_are_no_commits() -> None:
    one = Lone().member()
    one.consumer.subscribe(["t", "u"])
    one.poll()
    commit = one.consumer.commit_sync(one.now, FIVE)
    assert isinstance(commit.error, RebalanceInProgressError)
    one.answer_join(generation=2)
    assert one.consumer.state is MemberState.COMPLETING_REBALANCE
    assert isinstance(one.consumer.commit_sync(one.now, FIVE).error, RebalanceInProgressError)


def test_the_listener_may_commit_what_is_about_to_go() -> None:
    one = Lone().member()
    one.consumer.subscribe(["t", "u"])
    event = one.consumer.poll(one.now)
    assert isinstance(event, RevokePartitions) and event.partitions == (T0, T1)
    commit = one.consumer.commit_sync(one.now, FIVE)
    body = one.sent("offset_commit").offset_commit
    assert body is not None and (body.generation_id, body.member_id) == (1, "member")
    one.answer_commit()
    commit.result()
    assert one.consumer.subscription.assigned == (T0, T1) and not one.requests("join_group")
    one.consumer.callback_done()
    one.poll()
    assert one.consumer.subscription.assigned == () and one.sent("join_group")


def test_without_a_subscription_it_is_a_simple_commit() -> None:
    one = Lone(group_instance_id="one")
    one.consumer.subscription.unsubscribe()
    one.consumer.commit_sync(one.now, FIVE)
    one.find()
    body = one.sent("offset_commit").offset_commit
    assert body is not None
    assert (body.generation_id, body.member_id, body.group_instance_id) == (-1, "", None)


def test_an_offset_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        Lone().member().consumer.commit_async(0, {T0: OffsetAndMetadata(-1)})


# --- asynchronous ---------------------------------------------------------------------------------


def test_an_asynchronous_commit_is_told_of_at_the_next_poll() -> None:
    one = Lone().member()
    commit_id = one.consumer.commit_async(one.now, FIVE)
    assert one.poll() == []
    one.answer_commit()
    assert one.poll() == [CommitDone(commit_id, FIVE, None)]


@pytest.mark.parametrize("code", RETRIED, ids=lambda code: code.name)
def test_an_asynchronous_commit_is_not_sent_again(code: ErrorCode) -> None:
    one = Lone().member()
    one.consumer.commit_async(one.now, FIVE)
    one.answer_commit(code)
    (done,) = one.poll()
    assert isinstance(done, CommitDone) and isinstance(done.error, RetriableCommitFailedError)
    refind(one)
    assert not one.requests("offset_commit")


def test_commits_wait_in_order_for_the_coordinator_to_be_found() -> None:
    one = Lone().member()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.NOT_COORDINATOR)
    for offset in (1, 2, 3):
        one.consumer.commit_async(one.now, {T0: OffsetAndMetadata(offset)})
    refind(one)
    sent = [
        r.offset_commit.topics[0].partitions[0].committed_offset
        for r in one.requests("offset_commit")
        if r.offset_commit
    ]
    assert sent == [1, 2, 3]


def test_they_fail_when_the_lookup_does() -> None:
    one = Lone().member()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.NOT_COORDINATOR)
    one.consumer.commit_async(one.now, FIVE)
    one.advance(0)
    one.answer(one.sent("find_coordinator"), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    (done,) = one.consumer.completed_commits()
    assert isinstance(done.error, RetriableCommitFailedError)


def test_a_synchronous_commit_of_nothing_waits_for_those_before_it() -> None:
    one = Lone().member()
    one.consumer.commit_async(one.now, FIVE)
    flush = one.consumer.commit_sync(one.now, {})
    assert not flush.done
    one.answer_commit()
    assert flush.done and len(one.consumer.completed_commits()) == 1
    assert one.consumer.commit_sync(one.now, {}).done


def test_a_fenced_commit_stops_the_consumer() -> None:
    one = Lone(group_instance_id="one").member()
    one.consumer.commit_async(one.now, FIVE)
    one.answer_commit(ErrorCode.FENCED_INSTANCE_ID)
    assert isinstance(one.consumer.completed_commits()[0].error, FencedInstanceIdError)
    with pytest.raises(FencedInstanceIdError):
        one.poll()
    with pytest.raises(FencedInstanceIdError):
        one.consumer.commit_async(one.now, FIVE)


# --- automatic ------------------------------------------------------------------------------------


def automatic() -> Lone:
    """A member that commits every second."""
    return Lone(enable_auto_commit=True, auto_commit_interval_ms=1_000).member()


def test_positions_are_committed_at_every_interval() -> None:
    one = automatic()
    for offset in (7, 8):
        one.consumer.subscription.seek(T0, offset)
        one.advance(999)
        one.poll()
        assert not one.requests("offset_commit")
        one.advance(1)
        one.poll()
        body = one.sent("offset_commit").offset_commit
        assert body is not None
        assert [p.committed_offset for p in body.topics[0].partitions] == [offset, 0]
        one.answer_commit()
        (done,) = one.poll()
        assert isinstance(done, CommitDone) and done.commit_id is None


def test_an_automatic_commit_that_failed_for_a_moment_is_repeated_soon() -> None:
    one = automatic()
    one.advance(1_000)
    one.poll()
    one.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    (done,) = one.poll()
    assert isinstance(done, CommitDone) and isinstance(done.error, RetriableCommitFailedError)
    one.advance(BACKOFF_MS)
    one.poll()
    assert one.sent("offset_commit")


# --- where to start -------------------------------------------------------------------------------


def test_a_member_starts_from_what_is_committed() -> None:
    one = Lone()
    one.find()
    one.join()
    assert one.consumer.subscription.fetchable() == {}
    body = one.sent("offset_fetch").offset_fetch
    assert body == m.OffsetFetchRequest((m.OffsetFetchTopic("t", (0, 1)),), require_stable=True)
    one.answer_fetch({T0: 12, T1: -1})
    assert one.consumer.subscription.fetchable() == {T0: 12}
    assert one.consumer.subscription.awaiting_reset() == {T1: AutoOffsetReset.LATEST}
    one.consumer.subscription.resolve_reset(T1, AutoOffsetReset.LATEST, 90)
    assert one.consumer.subscription.fetchable() == {T0: 12, T1: 90}


def test_with_no_reset_policy_there_is_nowhere_to_start() -> None:
    one = Lone(auto_offset_reset="none")
    one.find()
    one.join()
    with pytest.raises(NoOffsetForPartitionError, match=r"t-1.*auto\.offset\.reset"):
        one.answer_fetch({T0: 12, T1: -1})


def test_a_seek_is_not_undone_by_what_is_fetched() -> None:
    one = Lone()
    one.find()
    one.join()
    one.consumer.subscription.seek(T0, 3)
    one.answer_fetch({T0: 12, T1: 13})
    assert one.consumer.subscription.fetchable() == {T0: 3, T1: 13}


def test_what_is_fetched_for_an_older_assignment_is_not_taken() -> None:
    one = Lone()
    one.find()
    one.join()
    stale = one.sent("offset_fetch")
    one.consumer.subscribe(["t", "u"])
    one.join(generation=2)
    assert len(one.requests("offset_fetch")) == 2
    topic = m.OffsetFetchTopicResult("t", (m.OffsetFetchPartition(0, 4, -1, ""),))
    one.answer(stale, body=m.OffsetFetchResponse((topic,)))
    one.poll()
    assert one.consumer.subscription.position(T0) is None
    one.answer_fetch({T0: 12, T1: 13})
    assert one.consumer.subscription.position(T0) == 12


@pytest.mark.parametrize(
    "code",
    [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR],
    ids=lambda code: code.name,
)
def test_a_fetch_is_sent_again(code: ErrorCode) -> None:
    one = Lone().member()
    fetch = one.consumer.committed(one.now, [T0])
    one.answer(one.sent("offset_fetch"), code)
    refind(one)
    one.answer_fetch({T0: 9})
    assert fetch.result() == {T0: OffsetAndMetadata(9, "", -1)}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.UNSTABLE_OFFSET_COMMIT, None),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UnknownTopicOrPartitionError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ConsumerError),
    ],
)
def test_the_codes_of_fetched_partitions(
    code: ErrorCode, error: type[ConsumerError] | None
) -> None:
    one = Lone().member()
    fetch = one.consumer.committed(one.now, [T0])
    partition = m.OffsetFetchPartition(0, -1, -1, "", int(code))
    body = m.OffsetFetchResponse((m.OffsetFetchTopicResult("t", (partition,)),))
    one.answer(one.sent("offset_fetch"), body=body)
    if error is None:
        assert not fetch.done
        one.advance(BACKOFF_MS)
        assert one.sent("offset_fetch")
    else:
        assert type(fetch.error) is error and "t-0" in str(fetch.error)


def test_fetching_nothing_needs_no_coordinator() -> None:
    assert Lone().consumer.committed(0, []).result() == {}


def test_a_fetch_that_may_not_be_made_fails() -> None:
    one = Lone().member()
    fetch = one.consumer.committed(one.now, [T0])
    one.answer(one.sent("offset_fetch"), ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(GroupAuthorizationError):
        fetch.result()


def test_a_fetch_without_an_answer_ends_with_its_timeout() -> None:
    one = Lone().member()
    fetch = one.consumer.committed(one.now, [T0])
    with pytest.raises(RuntimeError, match="not done"):
        fetch.result()
    one.advance(60_000)
    with pytest.raises(CoordinatorTimeoutError):
        fetch.result()


def test_an_answer_after_the_timeout_still_counts_for_the_membership() -> None:
    one = Lone().member()
    commit = one.consumer.commit_sync(one.now, FIVE, timeout_ms=100)
    one.advance(100)
    assert isinstance(commit.error, CoordinatorTimeoutError)
    one.answer_commit(ErrorCode.ILLEGAL_GENERATION)
    assert one.consumer.generation == Generation(member_id="member")
    assert isinstance(commit.error, CoordinatorTimeoutError)
