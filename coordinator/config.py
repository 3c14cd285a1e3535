"""Typing of settings under Kafka's names, and the broker's settings for group coordination."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

# Kafka's INT settings hold 32 bits, its LONG ones 64.
NonNegative = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
NonNegativeLong = Annotated[int, Meta(ge=0, le=2**63 - 1)]
PositiveLong = Annotated[int, Meta(ge=1, le=2**63 - 1)]

# The most that a new member's first join may be parked (ms); its session starts with the answer.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


class ConfigError(ValueError):
    """A setting that does not exist, or an invalid value."""


def _kafka_name(field: str) -> str:
    return field.replace("_", ".")


class KafkaSettings(Struct, frozen=True, forbid_unknown_fields=True, rename=_kafka_name):
    """Settings with Kafka's names: the field `group_max_size` is the setting `group.max.size`."""


_Settings = TypeVar("_Settings", bound=KafkaSettings)


def names_of(kind: type[KafkaSettings]) -> tuple[str, ...]:
    """Return the names of the settings, as Kafka writes them."""
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


def typed(kind: type[_Settings], values: Mapping[str, Any]) -> _Settings:
    """Convert settings under Kafka's names to `kind`.

    Numbers and booleans may be strings, as in Kafka's property files. Raises ConfigError with the
    setting's name, and for an unknown setting with the most similar known name.
    """
    known = names_of(kind)
    for name in values:
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}{nearest(name, known)}")
    try:
        return msgspec.convert(dict(values), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error)) from error


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the most similar known name, or "" if none is similar."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


class GroupCoordinatorConfig(KafkaSettings, frozen=True):
    """The settings of the group coordinator, the section [group] of a configuration file.

    Source: GroupCoordinatorConfig of Kafka 4.1, the offsets topic's `max.message.bytes`,
    StandardAuthorizer.
    """

    offsets_topic_num_partitions: Positive = 50
    offset_metadata_max_bytes: NonNegative = 4096
    offsets_retention_minutes: Positive = 10080
    offsets_retention_check_interval_ms: PositiveLong = 600_000
    offsets_commit_timeout_ms: Positive = 5000
    group_min_session_timeout_ms: NonNegative = 6000
    group_max_session_timeout_ms: NonNegative = 1_800_000
    group_initial_rebalance_delay_ms: NonNegative = 3000
    group_max_size: Positive = 2**31 - 1
    max_message_bytes: Positive = 1_048_588
    super_users: str = ""
    allow_everyone_if_no_acl_found: bool = False

    @property
    def offsets_retention_ms(self) -> int:
        """The retention of committed offsets, ms."""
        return self.offsets_retention_minutes * 60_000


def parse_config(
    settings: Mapping[str, Any], base: GroupCoordinatorConfig | None = None
) -> GroupCoordinatorConfig:
    """Return `base` (default: Kafka's defaults) with these settings. Raises ConfigError."""
    below = {} if base is None else msgspec.to_builtins(base)
    return typed(GroupCoordinatorConfig, {**below, **settings})
