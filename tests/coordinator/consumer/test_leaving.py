"""From the call to unsubscribe or close until the member has left, and what comes after that."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.consumer.consumer_errors import GroupAuthorizationError
from group_coordinator.coordinator.consumer.events import LosePartitions, RevokePartitions
from group_coordinator.schemas.errors import ErrorCode
from tests.coordinator.consumer.lone import HEARTBEAT_MS, T0, T1, Lone


def test_a_fenced_consumer_closes_without_an_error() -> None:
    one = Lone(group_instance_id="one").member()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.FENCED_INSTANCE_ID)
    one.consumer.close(one.now)
    assert one.poll() == [LosePartitions((T0, T1), "the consumer is being closed")]
    assert one.consumer.closed


def test_what_no_coordinator_was_found_for_is_told_to_who_stays_and_not_to_who_leaves() -> None:
    one = Lone()
    one.poll()
    one.answer(one.sent("find_coordinator"), ErrorCode.GROUP_AUTHORIZATION_FAILED)
    one.consumer.unsubscribe(one.now)
    assert one.poll() == []
    assert not one.consumer.is_subscribed
    one.consumer.subscribe(["t"])
    with pytest.raises(GroupAuthorizationError):
        one.poll()


def test_closing_after_a_listener_that_raised_while_the_member_unsubscribed() -> None:
    """The listener is not called again, and the member leaves once."""
    one = Lone().member()
    one.consumer.unsubscribe(one.now)
    assert isinstance(one.consumer.poll(one.now), RevokePartitions)
    one.consumer.close(one.now)
    assert one.poll() == []
    one.answer(one.sent("leave_group"))
    one.poll()
    assert one.consumer.closed


def test_who_leaves_does_not_wait_for_the_next_automatic_commit() -> None:
    one = Lone(enable_auto_commit=True).member()
    assert one.consumer.poll_deadline is not None
    one.consumer.unsubscribe(one.now)
    assert one.consumer.poll_deadline is None
