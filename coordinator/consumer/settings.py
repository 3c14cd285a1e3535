"""The consumer's settings under Kafka's names, with the defaults of Kafka 4.1's ConsumerConfig."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from group_coordinator.coordinator.config import (
    ConfigError,
    KafkaSettings,
    NonNegative,
    Positive,
    typed,
)
from group_coordinator.coordinator.consumer.assignors import (
    Assignor,
    RebalanceProtocol,
    UnknownAssignor,
    assignor,
)

# An assignor may be named as Kafka's own setting names it, by its Java class.
_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
_JAVA_NAMES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
# A join may take max.poll.interval.ms; this is added for the round trip (AbstractCoordinator).
JOIN_GROUP_TIMEOUT_LAPSE_MS = 5000


class AutoOffsetReset(StrEnum):
    """Where to begin in a partition without a committed offset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class ConsumerSettings(KafkaSettings, frozen=True, kw_only=True):
    """Settings of one consumer. Times in ms.

    `max_poll_interval_ms` is also the rebalance timeout that JoinGroup carries. Raises ConfigError,
    naming the setting, for values that contradict each other. Without a group (`group_id` None)
    nothing is committed.
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    client_id: str = ""
    client_rack: str = ""
    session_timeout_ms: NonNegative = 45_000
    heartbeat_interval_ms: Positive = 3_000
    max_poll_interval_ms: Positive = 300_000
    retry_backoff_ms: NonNegative = 100
    retry_backoff_max_ms: NonNegative = 1_000
    request_timeout_ms: Positive = 30_000
    default_api_timeout_ms: Positive = 60_000
    enable_auto_commit: bool = True
    auto_commit_interval_ms: NonNegative = 5_000
    auto_offset_reset: AutoOffsetReset = AutoOffsetReset.LATEST
    max_poll_records: Positive = 500
    fetch_min_bytes: NonNegative = 1
    fetch_max_wait_ms: NonNegative = 500
    fetch_max_bytes: NonNegative = 50 << 20
    max_partition_fetch_bytes: NonNegative = 1 << 20
    partition_assignment_strategy: tuple[str, ...] = ("range", "cooperative-sticky")
    internal_leave_group_on_close: bool = True

    def __post_init__(self) -> None:
        if self.group_id == "":
            raise ConfigError("group.id must not be empty; leave it out for none")
        if self.group_id is None and self.enable_auto_commit:
            raise ConfigError(
                "enable.auto.commit cannot be set to true when default group id (null) is used"
            )
        if self.group_instance_id == "":
            raise ConfigError("group.instance.id must not be empty; leave it out for none")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be lower than "
                f"session.timeout.ms ({self.session_timeout_ms})"
            )
        _check_assignors(self.partition_assignment_strategy)

    @property
    def assignors(self) -> tuple[Assignor, ...]:
        """The assignors offered, the preferred one first."""
        return tuple(assignor(name) for name in self.partition_assignment_strategy)

    @property
    def rebalance_protocol(self) -> RebalanceProtocol:
        """COOPERATIVE if every assignor offered supports it, else EAGER."""
        if RebalanceProtocol.COOPERATIVE in common_protocols(self.assignors):
            return RebalanceProtocol.COOPERATIVE
        return RebalanceProtocol.EAGER

    @property
    def join_timeout_ms(self) -> int:
        """How long an answer to JoinGroup is waited for, ms."""
        longest_join = self.max_poll_interval_ms + JOIN_GROUP_TIMEOUT_LAPSE_MS
        return max(self.request_timeout_ms, longest_join)


def common_protocols(assignors: tuple[Assignor, ...]) -> set[RebalanceProtocol]:
    """The rebalance protocols that all of these assignors support."""
    return set.intersection(*(set(one.protocols) for one in assignors))


def _check_assignors(names: tuple[str, ...]) -> None:
    setting = "partition.assignment.strategy"
    if not names:
        raise ConfigError(f"{setting} must name at least one assignor")
    if len(set(names)) < len(names):
        raise ConfigError(f"{setting} names an assignor twice: {', '.join(names)}")
    try:
        assignors = tuple(assignor(name) for name in names)
    except UnknownAssignor as error:
        raise ConfigError(f"{setting}: {error}") from error
    if not common_protocols(assignors):
        raise ConfigError(
            f"{setting}: {', '.join(names)} have no rebalance protocol in common: "
            "they cannot be offered together"
        )


def parse_settings(settings: Mapping[str, Any]) -> ConsumerSettings:
    """Read settings from Kafka's names; the assignors may be one text with commas.

    They are called by their names or by Kafka's Java classes. Without a group.id,
    enable.auto.commit is false by default. Raises ConfigError as `typed`.
    """
    given = dict(settings)
    if given.get("group.id") is None:
        given.setdefault("enable.auto.commit", False)
    strategy = given.get("partition.assignment.strategy")
    if strategy is not None:
        given["partition.assignment.strategy"] = _assignor_names(strategy)
    return typed(ConsumerSettings, given)


def _assignor_names(strategy: Any) -> Any:
    names = strategy.split(",") if isinstance(strategy, str) else strategy
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        return names
    trimmed = (name.strip().removeprefix(_JAVA_PACKAGE) for name in names)
    return tuple(_JAVA_NAMES.get(name, name) for name in trimmed if name)
