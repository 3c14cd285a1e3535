"""After-effects of a rebalance: a former leader, backoffs, a changed subscription."""

from __future__ import annotations

from group_coordinator.coordinator.consumer.events import CallAssignor, LosePartitions
from group_coordinator.coordinator.consumer.protocol import (
    Subscription,
    decode_subscription,
    encode_subscription,
)
from group_coordinator.coordinator.consumer.subscription_state import OffsetAndMetadata
from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode
from tests.coordinator.consumer.lone import (
    BACKOFF_MS,
    COOPERATIVE,
    HEARTBEAT_MS,
    T0,
    T1,
    Lone,
)


def leader() -> Lone:
    """A member that leads its first generation, alone."""
    one = Lone()
    one.find()
    one.poll()
    metadata = encode_subscription(Subscription(topics=("t",)))
    one.answer_join(leads=[m.JoinGroupResponseMember("member", None, metadata)])
    one.poll()
    one.answer_sync([T0, T1])
    one.poll()
    assert one.consumer.is_leader
    return one


def joined_topics(one: Lone) -> tuple[str, ...]:
    """The topics that the JoinGroup on its way names."""
    join = one.sent("join_group").join_group
    assert join is not None
    return decode_subscription(join.protocols[0].metadata).topics


def test_a_leader_that_becomes_a_follower_leaves_new_partitions_to_the_leader() -> None:
    one = leader()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.REBALANCE_IN_PROGRESS)
    one.join([T0], generation=2)
    assert not one.consumer.is_leader
    one.consumer.update_topics({"t": 3})
    assert one.poll() == []
    assert not one.consumer.is_rejoining


def test_who_has_unsubscribed_leads_nobody() -> None:
    one = leader()
    one.consumer.unsubscribe(one.now)
    one.poll()
    assert not one.consumer.is_leader


def test_a_new_member_that_closes_before_its_join_is_answered_has_nothing_to_leave() -> None:
    one = Lone()
    one.find()
    one.poll()
    assert one.sent("join_group")
    one.consumer.close(one.now)
    one.poll()
    assert not one.requests("leave_group"), "it has no member id yet"


def test_a_join_that_succeeds_ends_the_growth_of_the_backoff() -> None:
    one = Lone()
    one.find()
    for pause in (BACKOFF_MS, 2 * BACKOFF_MS):
        one.poll()
        one.answer(one.sent("join_group"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        one.poll()
        one.advance(pause)
    one.join()
    one.consumer.subscribe(["t", "u"])
    one.poll()
    one.answer(one.sent("join_group"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    one.poll()
    one.advance(BACKOFF_MS)
    one.poll()
    assert one.sent("join_group")


def test_a_subscription_that_changes_while_assignors_are_asked_is_joined_with_next() -> None:
    one = Lone(catalogue={"t": 2, "u": 1})
    one.find()
    event = one.consumer.poll(one.now)
    assert isinstance(event, CallAssignor)
    event.run()
    one.consumer.subscribe(["u"])
    one.consumer.callback_done()
    one.poll()
    assert joined_topics(one) == ("t",)
    one.join([])
    assert joined_topics(one) == ("u",)


def test_the_interval_of_automatic_commits_begins_anew_with_an_assignment() -> None:
    one = Lone(enable_auto_commit=True, auto_commit_interval_ms=HEARTBEAT_MS + 1_000).member()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.REBALANCE_IN_PROGRESS)
    one.poll()
    one.answer_commit()
    one.join(generation=2)
    one.answer_fetch({T0: 0, T1: 0})
    one.advance(1_000)
    one.poll()
    assert not one.requests("offset_commit")
    one.advance(HEARTBEAT_MS)
    one.poll()
    assert one.sent("offset_commit")


def test_a_member_that_leaves_while_it_joins_has_lost_what_it_kept() -> None:
    """It is unknown whether the group still assigns them to this member."""
    one = Lone(**COOPERATIVE).member()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.REBALANCE_IN_PROGRESS)
    assert one.poll() == []
    one.consumer.unsubscribe(one.now)
    (lost,) = one.poll()
    assert isinstance(lost, LosePartitions) and lost.partitions == (T0, T1)


def test_a_consumer_that_has_closed_owns_nothing() -> None:
    one = Lone().member()
    one.consumer.close(one.now)
    one.poll()
    assert one.consumer.assignment == ()


def test_a_commit_told_that_the_coordinator_has_moved_has_it_looked_for() -> None:
    one = Lone().member()
    one.consumer.commit_async(one.now)
    one.answer_commit(ErrorCode.NOT_COORDINATOR)
    one.poll()
    assert one.sent("find_coordinator")


def test_one_topic_that_may_not_be_committed_does_not_hide_the_rebalance() -> None:
    one = Lone().member()
    offsets = {T0: OffsetAndMetadata(1), T1: OffsetAndMetadata(1)}
    one.consumer.commit_async(one.now, offsets)
    codes = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.REBALANCE_IN_PROGRESS)
    results = tuple(m.PartitionResult(number, int(code)) for number, code in enumerate(codes))
    body = m.OffsetCommitResponse((m.TopicResult("t", results),))
    one.answer(one.sent("offset_commit"), body=body)
    assert one.consumer.is_rejoining
