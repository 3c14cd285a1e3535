"""The consumer's settings: Kafka's names and defaults, and refused values."""

from __future__ import annotations

from typing import Any

import pytest

from group_coordinator.coordinator.config import ConfigError
from group_coordinator.coordinator.consumer.assignors import RebalanceProtocol
from group_coordinator.coordinator.consumer.backoff import ExponentialBackoff
from group_coordinator.coordinator.consumer.consumer_settings import (
    AutoOffsetReset,
    parse_settings,
    rebalance_protocol,
)


def test_the_defaults_are_kafkas() -> None:
    """ConsumerConfig of Kafka 4.1."""
    settings = parse_settings({"group.id": "g"})
    assert settings.session_timeout_ms == 45_000
    assert settings.heartbeat_interval_ms == 3_000
    assert settings.max_poll_interval_ms == 300_000
    assert settings.retry_backoff_ms == 100
    assert settings.retry_backoff_max_ms == 1_000
    assert settings.request_timeout_ms == 30_000
    assert settings.default_api_timeout_ms == 60_000
    assert settings.enable_auto_commit
    assert settings.auto_commit_interval_ms == 5_000
    assert settings.auto_offset_reset is AutoOffsetReset.LATEST
    assert settings.max_poll_records == 500
    assert settings.fetch_min_bytes == 1
    assert settings.fetch_max_wait_ms == 500
    assert settings.fetch_max_bytes == 52_428_800
    assert settings.max_partition_fetch_bytes == 1_048_576
    assert settings.partition_assignment_strategy == ("range", "cooperative-sticky")
    assert rebalance_protocol(settings.new_assignors()) is RebalanceProtocol.EAGER
    assert settings.join_timeout_ms == 305_000


def test_values_may_be_text() -> None:
    settings = parse_settings(
        {
            "group.id": "g",
            "session.timeout.ms": "10000",
            "enable.auto.commit": "false",
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.StickyAssignor, "
            "roundrobin",
            "auto.offset.reset": "earliest",
        }
    )
    assert settings.session_timeout_ms == 10_000
    assert not settings.enable_auto_commit
    assert settings.partition_assignment_strategy == ("sticky", "roundrobin")


@pytest.mark.parametrize(
    ("strategy", "protocol"),
    [
        ("range", RebalanceProtocol.EAGER),
        ("cooperative-sticky", RebalanceProtocol.COOPERATIVE),
        ("cooperative-sticky,range", RebalanceProtocol.EAGER),
    ],
)
def test_the_most_advanced_protocol_that_all_assignors_have(
    strategy: str, protocol: RebalanceProtocol
) -> None:
    given = {"group.id": "g", "partition.assignment.strategy": strategy}
    assert rebalance_protocol(parse_settings(given).new_assignors()) is protocol


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"group.id": ""}, "group.id"),
        ({"group.instance.id": ""}, "group.instance.id"),
        ({"sesion.timeout.ms": 1}, "did you mean 'session.timeout.ms'"),
        ({"heartbeat.interval.ms": 45_000}, "lower than session.timeout.ms"),
        ({"session.timeout.ms": "soon"}, "session.timeout.ms"),
        ({"max.poll.interval.ms": 0}, "max.poll.interval.ms"),
        ({"auto.offset.reset": "middle"}, "auto.offset.reset"),
        ({"partition.assignment.strategy": "fair"}, "partition.assignment.strategy"),
        ({"partition.assignment.strategy": []}, "partition.assignment.strategy"),
        ({"partition.assignment.strategy": 3}, "partition.assignment.strategy"),
    ],
)
def test_what_is_refused_is_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_settings({"group.id": "g", **given})
    assert words in str(raised.value)


def test_a_consumer_without_a_group_commits_nothing_automatically() -> None:
    settings = parse_settings({})
    assert (settings.group_id, settings.enable_auto_commit) == (None, False)
    assert parse_settings({"group.id": None, "enable.auto.commit": "false"}) == settings
    match = r"enable\.auto\.commit cannot be set to true when default group id \(null\) is used"
    with pytest.raises(ConfigError, match=match):
        parse_settings({"enable.auto.commit": "true"})
    with pytest.raises(ConfigError, match=r"unknown setting 'groupid'; did you mean 'group\.id'"):
        parse_settings({"groupid": "g"})


def test_the_backoff_doubles_up_to_its_maximum_and_is_spread() -> None:
    """KIP-580: 20% either way, and never over the maximum."""
    settings = parse_settings({"group.id": "g"})
    assert [ExponentialBackoff(settings, lambda: 0.5)(n) for n in range(6)] == [
        100,
        200,
        400,
        800,
        1000,
        1000,
    ]
    assert ExponentialBackoff(settings, lambda: 0.0)(0) == 80
    assert ExponentialBackoff(settings, lambda: 0.999)(0) == 119
    assert ExponentialBackoff(settings, lambda: 0.999)(9) == 1000
    assert ExponentialBackoff(settings, lambda: 0.5)(10**9) == 1000
