"""Closing and unsubscribing, with a coordinator that answers and with one that does not."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.consumer.consumer_errors import (
    CommitFailedError,
    RetriableCommitFailedError,
)
from group_coordinator.coordinator.consumer.events import (
    CallAssignor,
    CommitDone,
    LosePartitions,
    RevokePartitions,
)
from group_coordinator.coordinator.consumer.member_state import GroupMembershipOperation
from group_coordinator.schemas.errors import ErrorCode
from tests.coordinator.consumer.lone import HEARTBEAT_MS, T0, T1, Lone

AUTO = {"enable_auto_commit": True, "auto_commit_interval_ms": 1_000_000}


def test_closing_commits_then_revokes_then_leaves() -> None:
    one = Lone(**AUTO).member()
    one.consumer.close(one.now, timeout_ms=1_000)
    assert one.poll() == []
    one.answer_commit()
    assert one.poll() == [RevokePartitions((T0, T1), "the consumer is being closed")]
    leave = one.sent("leave_group")
    assert not one.consumer.closed
    one.answer(leave)
    one.poll()
    assert one.consumer.closed
    assert one.consumer.tick_deadline is None and one.consumer.poll_deadline is None


def test_closing_takes_no_longer_than_it_may() -> None:
    one = Lone(**AUTO).member()
    one.consumer.close(one.now, timeout_ms=1_000)
    one.poll()
    one.advance(999)
    assert one.poll() == [] and not one.consumer.closed
    assert one.consumer.poll_deadline == one.now + 1
    one.advance(1)
    assert [type(event) for event in one.poll()] == [RevokePartitions]
    assert one.consumer.closed
    assert any("automatic commit at close failed" in n.text for n in one.consumer.take_log_lines())


def test_closing_without_a_coordinator_does_not_wait_for_one() -> None:
    one = Lone()
    one.poll()
    one.consumer.close(one.now)
    one.poll()
    assert one.consumer.closed


def test_closing_a_member_that_is_out_loses_its_partitions() -> None:
    one = Lone().member()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.UNKNOWN_MEMBER_ID)
    one.consumer.close(one.now)
    (event,) = one.poll()
    assert isinstance(event, LosePartitions)
    assert one.consumer.closed and not one.requests("leave_group")


@pytest.mark.parametrize(
    ("instance_id", "operation", "leaves"),
    [
        (None, GroupMembershipOperation.DEFAULT, True),
        (None, GroupMembershipOperation.REMAIN_IN_GROUP, False),
        ("one", GroupMembershipOperation.DEFAULT, False),
        ("one", GroupMembershipOperation.LEAVE_GROUP, True),
    ],
)
def test_who_leaves_at_close(
    instance_id: str | None, operation: GroupMembershipOperation, leaves: bool
) -> None:
    one = Lone(group_instance_id=instance_id).member()
    one.consumer.close(one.now, operation=operation)
    one.poll()
    assert bool(one.requests("leave_group")) is leaves


def test_internal_leave_group_on_close_keeps_the_member_and_its_partitions() -> None:
    one = Lone(internal_leave_group_on_close=False).member()
    one.consumer.close(one.now)
    assert one.poll() == []
    assert one.consumer.closed and not one.requests("leave_group")


def test_a_member_that_was_only_given_an_id_leaves() -> None:
    """Otherwise the coordinator would wait for it until its session is over."""
    one = Lone()
    one.find()
    one.join()
    one.consumer.subscribe(["t", "u"])
    one.poll()
    one.consumer.close(one.now)
    one.poll()
    assert one.sent("leave_group")


def test_closing_in_the_middle_of_a_rebalance_tells_the_listener_once() -> None:
    one = Lone().member()
    one.consumer.subscribe(["t", "u"])
    assert isinstance(one.consumer.poll(one.now), RevokePartitions)
    one.consumer.close(one.now)
    assert one.poll() == []
    assert one.consumer.assignment == ()


@pytest.mark.parametrize("calls", [1, 2])
def test_closing_after_an_assignor_s_call_takes_no_step_of_the_rebalance(calls: int) -> None:
    """Neither does it join, nor is the listener to give up what it was never given."""
    one = Lone()
    one.find()
    if calls == 2:
        one.poll()
        one.answer_join()
        one.answer_sync([T0])
    call = one.consumer.poll(one.now)
    assert isinstance(call, CallAssignor)
    call.run()
    one.consumer.close(one.now)
    assert one.poll() == []
    assert not one.requests("join_group")


def test_unsubscribing_revokes_and_leaves() -> None:
    one = Lone().member()
    one.consumer.unsubscribe(one.now)
    assert one.poll() == [RevokePartitions((T0, T1), "the consumer unsubscribed from all topics")]
    leave = one.sent("leave_group").leave_group
    assert leave is not None
    assert leave.members[0].reason == "the consumer unsubscribed from all topics"
    assert not one.consumer.is_subscribed
    assert one.poll() == []


def test_a_commit_that_was_not_sent_before_the_member_left_fails() -> None:
    """A commit without a member would be accepted by a group after its other members have left."""
    one = Lone().member()
    one.consumer.commit_async(one.now)
    one.answer_commit(ErrorCode.NOT_COORDINATOR)
    one.consumer.commit_async(one.now)
    one.consumer.unsubscribe(one.now)
    *done, _revoke = one.poll()
    one.find()
    done += one.poll()
    assert [type(each.error) for each in done if isinstance(each, CommitDone)] == [
        RetriableCommitFailedError,
        CommitFailedError,
    ]
    assert not one.requests("offset_commit")


def test_a_leave_that_is_refused_is_noted() -> None:
    one = Lone().member()
    one.consumer.unsubscribe(one.now)
    one.poll()
    one.consumer.take_log_lines()
    one.answer(one.sent("leave_group"), ErrorCode.UNKNOWN_MEMBER_ID)
    (note,) = one.consumer.take_log_lines()
    assert note.level == "error" and "UNKNOWN_MEMBER_ID" in note.text


def test_closing_waits_for_the_commits_on_their_way() -> None:
    one = Lone().member()
    one.consumer.commit_async(one.now)
    one.consumer.close(one.now)
    assert one.poll() == []
    one.answer_commit()
    done, revoke = one.poll()
    assert isinstance(done, CommitDone) and isinstance(revoke, RevokePartitions)


def test_a_closed_consumer_does_nothing_any_more() -> None:
    one = Lone().member()
    one.consumer.close(one.now)
    one.poll()
    leave = one.sent("leave_group")
    one.answer(leave)
    one.poll()
    one.advance(100_000)
    assert one.poll() == []
    assert not one.consumer.take_requests()
