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
    ConsumerPartitionAssignor,
    RebalanceProtocol,
    UnknownAssignor,
    assignor,
)

_STRATEGY = "partition.assignment.strategy"
# Kafka's setting names an assignor by its Java class. These names are accepted as well.
_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
_JAVA_NAMES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
# Added to max.poll.interval.ms, the longest join, for the round trip (AbstractCoordinator). In ms.
JOIN_GROUP_TIMEOUT_LAPSE_MS = 5000


class AutoOffsetReset(StrEnum):
    """The position in a partition without a committed offset: auto.offset.reset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class ConsumerSettings(KafkaSettings, frozen=True, kw_only=True):
    """Settings of one consumer. Times in ms, sizes in bytes.

    `max_poll_interval_ms` is also the rebalance timeout in JoinGroup.
    `partition_assignment_strategy` has names of Kafka's assignors, and classes or functions that
    return a ConsumerPartitionAssignor. Raises ConfigError with the setting's name if values are
    invalid or contradict each other.
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
    partition_assignment_strategy: tuple[Any, ...] = ("range", "cooperative-sticky")
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
        for strategy in self.partition_assignment_strategy:
            _check_strategy(strategy)
        if not self.partition_assignment_strategy:
            raise ConfigError(f"{_STRATEGY} must name at least one assignor")

    @property
    def strategy_names(self) -> tuple[str, ...]:
        """The names of the offered assignors; for a function without a name, its text."""
        strategies = self.partition_assignment_strategy
        return tuple(str(getattr(strategy, "name", strategy)) for strategy in strategies)

    def new_assignors(self) -> tuple[ConsumerPartitionAssignor, ...]:
        """Return new assignors for one member, the preferred one first.

        Raises ConfigError if an assignor is no ConsumerPartitionAssignor, or has no name of its
        own, or if the assignors have no common rebalance protocol.
        """
        assignors = tuple(map(_make_assignor, self.partition_assignment_strategy))
        names = [assignor.name for assignor in assignors]
        if len(set(names)) < len(names):
            raise ConfigError(f"{_STRATEGY} names an assignor twice: {', '.join(names)}")
        if not _common_protocols(assignors):
            raise ConfigError(
                f"{_STRATEGY}: {', '.join(names)} have no common rebalance protocol: "
                "use assignors that are all eager or all cooperative"
            )
        return assignors

    @property
    def join_timeout_ms(self) -> int:
        """The timeout of a JoinGroup request, ms."""
        longest_join = self.max_poll_interval_ms + JOIN_GROUP_TIMEOUT_LAPSE_MS
        return max(self.request_timeout_ms, longest_join)


def rebalance_protocol(assignors: tuple[ConsumerPartitionAssignor, ...]) -> RebalanceProtocol:
    """Return COOPERATIVE if all of these assignors support it, otherwise EAGER."""
    if RebalanceProtocol.COOPERATIVE in _common_protocols(assignors):
        return RebalanceProtocol.COOPERATIVE
    return RebalanceProtocol.EAGER


def _common_protocols(assignors: tuple[ConsumerPartitionAssignor, ...]) -> set[RebalanceProtocol]:
    return set.intersection(*(set(assignor.protocols) for assignor in assignors))


def _check_strategy(strategy: Any) -> None:
    if isinstance(strategy, str):
        try:
            assignor(strategy)
        except UnknownAssignor as error:
            raise ConfigError(f"{_STRATEGY}: {error}") from error
    elif not callable(strategy):
        raise ConfigError(
            f"{_STRATEGY}: {strategy!r} is neither the name of an assignor nor a function or class "
            "that returns one"
        )


def _make_assignor(strategy: Any) -> ConsumerPartitionAssignor:
    made = assignor(strategy) if isinstance(strategy, str) else strategy()
    if not isinstance(made, ConsumerPartitionAssignor):
        raise ConfigError(
            f"{_STRATEGY}: {strategy!r} returned {made!r}, which is not a ConsumerPartitionAssignor"
        )
    if not getattr(made, "name", ""):
        raise ConfigError(f"{_STRATEGY}: the assignor of {strategy!r} has no name")
    return made


def parse_settings(settings: Mapping[str, Any]) -> ConsumerSettings:
    """Convert settings under Kafka's names.

    The assignors may be a string with commas, of names or Kafka's Java classes. Without a group.id
    the default of enable.auto.commit is false. Raises ConfigError as `typed`.
    """
    values = dict(settings)
    if values.get("group.id") is None:
        values.setdefault("enable.auto.commit", False)
    strategy = values.get(_STRATEGY)
    if strategy is not None:
        values[_STRATEGY] = _assignor_names(strategy)
    return typed(ConsumerSettings, values)


def _assignor_names(strategy: Any) -> Any:
    items = strategy.split(",") if isinstance(strategy, str) else strategy
    if not isinstance(items, (list, tuple)):
        return items
    return tuple(name for item in items if (name := _assignor_name(item)))


def _assignor_name(item: Any) -> Any:
    if not isinstance(item, str):
        return item
    name = item.strip().removeprefix(_JAVA_PACKAGE)
    return _JAVA_NAMES.get(name, name)
