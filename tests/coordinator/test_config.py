"""Broker settings, by Kafka's names and with Kafka's defaults."""

from __future__ import annotations

from typing import Any

import pytest

from group_coordinator.coordinator.config import (
    ConfigError,
    GroupCoordinatorConfig,
    names_of,
    parse_config,
)


def test_the_defaults_are_those_of_kafka_4_1() -> None:
    config = parse_config({})
    assert config == GroupCoordinatorConfig()
    names = names_of(GroupCoordinatorConfig)
    assert {name: getattr(config, name.replace(".", "_")) for name in names} == {
        "offsets.topic.num.partitions": 50,
        "offset.metadata.max.bytes": 4096,
        "offsets.retention.minutes": 10_080,
        "offsets.retention.check.interval.ms": 600_000,
        "offsets.commit.timeout.ms": 5_000,
        "group.min.session.timeout.ms": 6_000,
        "group.max.session.timeout.ms": 1_800_000,
        "group.initial.rebalance.delay.ms": 3_000,
        "group.max.size": 2**31 - 1,
        "max.message.bytes": 1_048_588,
        "super.users": "",
        "allow.everyone.if.no.acl.found": False,
    }


@pytest.mark.parametrize("value", [7, "7"])
def test_a_number_may_be_written_as_text(value: Any) -> None:
    assert parse_config({"group.max.size": value}).group_max_size == 7


def test_settings_are_laid_over_a_base() -> None:
    base = parse_config({"group.max.size": 7, "offsets.retention.minutes": 60})
    config = parse_config({"offsets.retention.minutes": 5}, base)
    assert (config.group_max_size, config.offsets_retention_minutes) == (7, 5)
    assert base.offsets_retention_minutes == 60


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("group.max.sise", "did you mean 'group.max.size'?"),
        ("group_max_size", "did you mean 'group.max.size'?"),
        ("zookeeper.connect", "unknown setting 'zookeeper.connect'$"),
    ],
)
def test_an_unknown_setting_is_named_with_its_nearest(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        parse_config({name: 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group.max.size", 0),
        ("group.max.size", 2**31),
        ("group.max.size", "many"),
        ("group.max.size", None),
        ("group.max.size", True),
        ("group.max.size", 3.5),
        ("offsets.topic.num.partitions", 0),
        ("offsets.retention.minutes", 0),
        ("offsets.commit.timeout.ms", 0),
        ("group.initial.rebalance.delay.ms", -1),
    ],
)
def test_a_value_that_kafka_would_not_take_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        parse_config({name: value})


def test_x02_the_longest_retention_does_not_overflow() -> None:
    """It overflowed in Kafka until 0.10.1.1 (KAFKA-4472)."""
    config = parse_config({"offsets.retention.minutes": 2**31 - 1})
    assert config.offsets_retention_ms == (2**31 - 1) * 60_000


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        GroupCoordinatorConfig().group_max_size = 1
