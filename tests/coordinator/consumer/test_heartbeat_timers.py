"""The heartbeat's timers, as Kafka's HeartbeatTest tells of them."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.consumer.backoff import ExponentialBackoff
from group_coordinator.coordinator.consumer.consumer_settings import parse_settings
from group_coordinator.coordinator.consumer.heartbeat_timers import Heartbeat

SETTINGS = parse_settings(
    {
        "group.id": "g",
        "session.timeout.ms": 300,
        "heartbeat.interval.ms": 100,
        "max.poll.interval.ms": 900,
    }
)


@pytest.fixture
def heartbeat() -> Heartbeat:
    """Timers that start at 0."""
    return Heartbeat(SETTINGS, ExponentialBackoff(SETTINGS, lambda: 0.5), 0)


def test_heartbeat_is_due_after_the_interval(heartbeat: Heartbeat) -> None:
    assert not heartbeat.is_due(99)
    assert heartbeat.is_due(100)
    heartbeat.sent(110)
    assert not heartbeat.is_due(209)
    assert heartbeat.is_due(210)


def test_only_an_answer_restarts_the_session(heartbeat: Heartbeat) -> None:
    heartbeat.sent(100)
    assert not heartbeat.session_expired(299)
    assert heartbeat.session_expired(300)
    heartbeat.received(299)
    assert not heartbeat.session_expired(598)
    assert heartbeat.session_expired(599)


def test_only_a_poll_restarts_the_poll_interval(heartbeat: Heartbeat) -> None:
    heartbeat.received(899)
    assert not heartbeat.poll_expired(899)
    assert heartbeat.poll_expired(900)
    heartbeat.poll(899)
    assert not heartbeat.poll_expired(1_798)
    assert heartbeat.poll_expired(1_799)


def test_failed_heartbeats_back_off_until_one_succeeds(
    heartbeat: Heartbeat,
) -> None:
    due = []
    for _ in range(3):
        heartbeat.failed(1_000)
        due.append(heartbeat.due_at)
    heartbeat.received(1_000)
    heartbeat.failed(1_000)
    assert [*due, heartbeat.due_at] == [1_100, 1_200, 1_400, 1_100]


def test_new_generation_restarts_every_timer(heartbeat: Heartbeat) -> None:
    heartbeat.reset_timeouts(5_000)
    assert heartbeat.deadline == 5_100
    assert not heartbeat.session_expired(5_299)
    assert not heartbeat.poll_expired(5_899)


def test_found_coordinator_restarts_the_session(heartbeat: Heartbeat) -> None:
    heartbeat.reset_session(250)
    assert not heartbeat.session_expired(549)
    assert heartbeat.is_due(100)
