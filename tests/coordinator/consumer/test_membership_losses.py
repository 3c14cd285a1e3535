"""A member loses its generation, coordinator or membership while a request is in flight."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.consumer.consumer_errors import FencedInstanceIdError
from group_coordinator.coordinator.consumer.events import AssignPartitions
from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode
from tests.coordinator.consumer.lone import (
    BACKOFF_MS,
    HEARTBEAT_MS,
    MAX_POLL_MS,
    SESSION_MS,
    T0,
    Lone,
)


def test_the_answer_to_an_earlier_sync_is_not_taken_for_the_present_one_s() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer_join()
    earlier = one.sent("sync_group")
    one.consumer.unsubscribe(one.now)
    one.poll()
    one.consumer.subscribe(["t"])
    one.poll()
    one.answer_join(generation=2)
    one.answer(earlier, ErrorCode.REBALANCE_IN_PROGRESS)
    one.poll()
    one.answer_sync([T0])
    assert one.poll() == [AssignPartitions((T0,), 2)]


@pytest.mark.parametrize("step", ["join_group", "sync_group"])
def test_a_member_that_is_fenced_while_it_joins_stops_for_good(step: str) -> None:
    one = Lone(group_instance_id="one")
    one.find()
    one.poll()
    if step == "sync_group":
        one.answer_join()
    one.answer(one.sent(step), ErrorCode.FENCED_INSTANCE_ID)
    for _ in range(3):
        with pytest.raises(FencedInstanceIdError):
            one.poll()
        one.advance(MAX_POLL_MS)
    assert not one.requests("join_group")


def test_nothing_that_is_answered_later_lets_a_fenced_member_go_on() -> None:
    one = Lone(group_instance_id="one").member()
    one.advance(2 * HEARTBEAT_MS)
    first, second = one.requests("heartbeat")
    one.answer(first, ErrorCode.FENCED_INSTANCE_ID)
    one.answer(second, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for _ in range(2):
        with pytest.raises(FencedInstanceIdError):
            one.poll()
    assert not one.requests("join_group")


def test_a_join_refused_for_a_generation_that_is_lost_already_keeps_the_member_id() -> None:
    one = Lone().member()
    one.advance(HEARTBEAT_MS)
    heartbeat = one.sent("heartbeat")
    one.consumer.subscribe(["t", "u"])
    one.poll()
    one.answer(heartbeat, ErrorCode.ILLEGAL_GENERATION)
    one.answer(one.sent("join_group"), ErrorCode.UNKNOWN_MEMBER_ID)
    one.poll()
    join = one.sent("join_group").join_group
    assert join is not None and join.member_id == "member"


def test_a_join_that_nobody_answers_is_repeated_after_the_backoff() -> None:
    one = Lone()
    one.find()
    one.poll()
    unanswered = one.sent("join_group")
    one.advance(MAX_POLL_MS + 5_000)
    one.find()
    one.poll()
    assert one.requests("join_group") == [unanswered]
    one.advance(BACKOFF_MS)
    one.poll()
    assert len(one.requests("join_group")) == 2


def test_while_the_coordinator_is_unknown_no_heartbeat_is_sent_and_it_is_looked_for() -> None:
    one = Lone().member()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.NOT_COORDINATOR)
    one.advance(HEARTBEAT_MS)
    assert one.sent("find_coordinator"), "without a poll"
    assert not one.requests("heartbeat")


def test_a_coordinator_that_was_found_again_hears_of_the_member_after_the_backoff() -> None:
    one = Lone().member()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.NOT_COORDINATOR)
    one.consumer.tick(one.now)
    one.answer(one.sent("find_coordinator"), body=m.FindCoordinatorResponse(0, 2, "other", 9))
    one.advance(BACKOFF_MS)
    assert one.sent("heartbeat")


def test_the_coordinator_is_looked_for_the_moment_the_session_ends() -> None:
    one = Lone().member()
    one.advance(SESSION_MS - 1)
    one.now += 1
    one.consumer.tick(one.now)
    assert one.sent("find_coordinator"), "or nothing wakes the background thread"


def test_a_heartbeat_told_of_a_rebalance_keeps_the_reason_that_there_is() -> None:
    one = Lone().member()
    one.advance(HEARTBEAT_MS)
    heartbeat = one.sent("heartbeat")
    one.consumer.commit_async(one.now)
    one.answer_commit(ErrorCode.REBALANCE_IN_PROGRESS)
    one.answer(heartbeat, ErrorCode.REBALANCE_IN_PROGRESS)
    one.poll()
    join = one.sent("join_group").join_group
    reason = "offset commit failed since group is already rebalancing"
    assert join is not None and join.reason == reason


def test_a_member_whose_generation_is_lost_does_not_leave() -> None:
    """Its id may be good, but the coordinator has said that it is not in the generation."""
    one = Lone().member()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.ILLEGAL_GENERATION)
    one.consumer.unsubscribe(one.now)
    one.poll()
    assert not one.requests("leave_group")
