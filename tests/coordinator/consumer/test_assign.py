"""A consumer that chooses its partitions itself: with a group, and without one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.coordinator.consumer.consumer_errors import (
    CommitFailedError,
    InvalidGroupIdError,
    NoOffsetForPartitionError,
)
from group_coordinator.coordinator.consumer.consumer_settings import AutoOffsetReset
from group_coordinator.coordinator.consumer.events import AssignPartitions, RevokePartitions
from group_coordinator.coordinator.consumer.member_state import MemberState
from group_coordinator.coordinator.consumer.subscription_state import (
    OffsetAndMetadata,
    SubscriptionError,
)
from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode
from tests.coordinator.consumer.lone import MAX_POLL_MS, T0, T1, Lone
from tests.examples import examples

AUTO = {"enable_auto_commit": True, "auto_commit_interval_ms": 1_000}
FIVE = {T0: OffsetAndMetadata(5)}


def groupless(**settings: Any) -> Lone:
    """A consumer without a group that has no partitions yet."""
    return Lone(topics=None, **{"group_id": None, "auto_offset_reset": "earliest", **settings})


def assigned(*partitions: Any, **settings: Any) -> Lone:
    """A consumer of a group that chose its partitions itself."""
    one = Lone(topics=None, **settings)
    one.consumer.assign(one.now, partitions)
    return one


# --- without a group ------------------------------------------------------------------------------


def test_without_a_group_positions_come_from_the_reset_policy() -> None:
    one = groupless()
    one.consumer.assign(one.now, [T0, T1])
    assert one.poll() == []
    earliest = AutoOffsetReset.EARLIEST
    assert one.consumer.subscription.awaiting_reset() == {T0: earliest, T1: earliest}
    one.consumer.subscription.resolve_reset(T0, earliest, 3)
    assert one.consumer.subscription.fetchable() == {T0: 3}


def test_without_a_group_and_a_reset_policy_a_position_has_to_be_given() -> None:
    one = groupless(auto_offset_reset="none")
    one.consumer.assign(one.now, [T0])
    for _ in range(2):
        with pytest.raises(NoOffsetForPartitionError, match=r"t-0, .* 'none'"):
            one.poll()
    one.consumer.subscription.seek(T0, 7)
    assert one.poll() == []
    assert one.consumer.subscription.fetchable() == {T0: 7}


@pytest.mark.parametrize(
    "call",
    [
        lambda one: one.consumer.subscribe(["t"]),
        lambda one: one.consumer.subscribe(re.compile("t")),
        lambda one: one.consumer.commit_sync(one.now),
        lambda one: one.consumer.commit_async(one.now, FIVE),
        lambda one: one.consumer.committed(one.now, [T0]),
    ],
)
def test_what_needs_a_group_says_so(call: Callable[[Lone], Any]) -> None:
    one = groupless()
    with pytest.raises(InvalidGroupIdError, match=r"you must provide a valid group\.id"):
        call(one)
    assert (one.poll(), one.consumer.is_subscribed) == ([], False)


STEPS: list[Callable[[Lone], Any]] = [
    lambda one: one.consumer.assign(one.now, [T0, T1]),
    lambda one: one.consumer.assign(one.now, [T1]),
    lambda one: one.consumer.assign(one.now, []),
    lambda one: one.consumer.unsubscribe(one.now),
    lambda one: one.consumer.update_topics({"t": 3}),
    lambda one: one.poll(),
    lambda one: one.advance(MAX_POLL_MS + 1),
    lambda one: one.consumer.subscription.seek(T1, 3) if T1 in one.consumer.assignment else None,
    lambda one: one.consumer.close(one.now),
]


@examples(40)
@given(st.lists(st.sampled_from(STEPS), max_size=12))
def test_without_a_group_nothing_is_asked_timed_told_or_logged(
    steps: list[Callable[[Lone], Any]],
) -> None:
    one = groupless()
    for step in steps:
        step(one)
        assert one.consumer.take_requests() == []
        assert one.consumer.take_log_lines() == []
        assert (one.consumer.tick_deadline, one.consumer.poll_deadline) == (None, None)


def test_without_a_group_a_consumer_closes_at_once() -> None:
    one = groupless()
    one.consumer.assign(one.now, [T0])
    one.consumer.close(one.now)
    assert (one.poll(), one.consumer.closed) == ([], True)


# --- with a group ---------------------------------------------------------------------------------


def test_with_a_group_positions_are_the_committed_ones_and_nobody_joins() -> None:
    one = assigned(T0, T1)
    one.find()
    one.answer_fetch({T0: 4, T1: -1})
    assert one.consumer.subscription.fetchable() == {T0: 4}
    assert set(one.consumer.subscription.awaiting_reset()) == {T1}
    one.advance(2 * MAX_POLL_MS)
    one.poll()
    assert one.consumer.state is MemberState.UNJOINED
    assert (one.requests("join_group"), one.requests("heartbeat")) == ([], [])


def test_with_a_group_commits_are_those_of_a_simple_consumer() -> None:
    one = assigned(T0, group_instance_id="mine")
    one.find()
    done = one.consumer.commit_sync(one.now, FIVE)
    commit = one.sent("offset_commit").offset_commit
    assert commit is not None
    assert (commit.generation_id, commit.member_id, commit.group_instance_id) == (-1, "", None)
    one.answer_commit()
    assert done.result() is None


def test_a_group_that_has_members_takes_no_commit_of_one_who_is_none() -> None:
    one = assigned(T0)
    one.find()
    done = one.consumer.commit_sync(one.now, FIVE)
    one.consumer.take_log_lines()
    one.answer_commit(ErrorCode.UNKNOWN_MEMBER_ID)
    with pytest.raises(
        CommitFailedError, match="group 'groupId' has members, and only they may commit"
    ):
        done.result()
    assert one.consumer.take_log_lines() == [], "it does not join again"


def test_positions_are_committed_automatically_and_before_they_are_replaced() -> None:
    one = assigned(T0, **AUTO)
    one.find()
    one.answer_fetch({T0: 4})
    one.consumer.subscription.seek(T0, 5)
    one.advance(1_000)
    one.poll()
    one.answer_commit()
    one.consumer.subscription.seek(T0, 6)
    one.consumer.assign(one.now, [T1])
    commit = one.sent("offset_commit").offset_commit
    assert commit is not None
    assert commit.topics == (
        m.OffsetCommitTopic("t", (m.OffsetCommitPartition(0, 6, committed_metadata=""),)),
    )


def test_assigning_calls_no_listener_nor_does_taking_it_all_back() -> None:
    one = assigned(T0)
    one.find()
    one.answer_fetch({T0: 4})
    one.consumer.assign(one.now, [])
    assert (one.poll(), one.consumer.assignment) == ([], ())
    one.consumer.assign(one.now, [T1])
    assert (one.poll(), one.consumer.assignment) == ([], (T1,))
    one.answer_fetch({T1: 4})
    one.consumer.close(one.now)
    assert (one.poll(), one.consumer.closed) == ([], True)
    assert one.requests("leave_group") == []


def test_an_offset_that_was_fetched_for_an_earlier_assignment_is_not_used() -> None:
    one = assigned(T0)
    one.find()
    stale = one.sent("offset_fetch")
    one.consumer.assign(one.now, [T1])
    one.poll()
    topics = (m.OffsetFetchTopicResult("t", (m.OffsetFetchPartition(0, 9, -1, ""),)),)
    one.answer(stale, body=m.OffsetFetchResponse(topics))
    one.answer_fetch({T1: 2})
    assert one.consumer.subscription.fetchable() == {T1: 2}


def test_assign_beside_subscribe_is_refused_and_after_unsubscribe_it_is_not() -> None:
    one = Lone().member()
    with pytest.raises(SubscriptionError, match="mutually exclusive"):
        one.consumer.assign(one.now, [T0])
    one.consumer.assign(one.now, [])
    (revoked,) = one.poll()
    assert isinstance(revoked, RevokePartitions) and not one.consumer.is_subscribed
    one.consumer.assign(one.now, [T1])
    with pytest.raises(SubscriptionError, match="mutually exclusive"):
        one.consumer.subscribe(["t"])
    one.consumer.unsubscribe(one.now)
    one.consumer.subscribe(["t"])
    one.answer(one.sent("leave_group"))
    assert one.join([T0]) == [AssignPartitions((T0,), 1)]


def test_assign_while_the_consumer_still_leaves_is_refused() -> None:
    one = Lone().member()
    one.consumer.unsubscribe(one.now)
    with pytest.raises(SubscriptionError, match="mutually exclusive"):
        one.consumer.assign(one.now, [T0])


def test_a_group_that_may_not_be_used_is_polls_error() -> None:
    one = assigned(T0)
    one.find()
    one.answer(one.sent("offset_fetch"), ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(Exception, match="the principal is not authorized to use group 'groupId'"):
        one.poll()
