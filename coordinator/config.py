"""Kafka's broker settings that group coordination obeys, under Kafka's names and defaults."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

# Kafka's INT settings hold 32 bits, its LONG ones 64.
NonNegative = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
PositiveLong = Annotated[int, Meta(ge=1, le=2**63 - 1)]

# How long a member may wait for the answer to its first join: until then it has no session.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


class ConfigError(ValueError):
    """A setting that does not exist or cannot have the value it was given."""


def _kafka_name(field: str) -> str:
    return field.replace("_", ".")


class GroupCoordinatorConfig(Struct, frozen=True, forbid_unknown_fields=True, rename=_kafka_name):
    """Settings of the group coordinator; each field is Kafka's key with `.` written `_`.

    Source: GroupCoordinatorConfig of Apache Kafka 4.1, the offsets topic's `max.message.bytes`, and
    the settings of StandardAuthorizer.
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
        """offsets.retention.minutes in ms."""
        return self.offsets_retention_minutes * 60_000


SETTING_NAMES: tuple[str, ...] = tuple(
    field.encode_name for field in msgspec.structs.fields(GroupCoordinatorConfig)
)


def parse_config(
    settings: Mapping[str, Any], base: GroupCoordinatorConfig | None = None
) -> GroupCoordinatorConfig:
    """Settings under Kafka's names, laid over `base` (default: Kafka's defaults).

    Numbers may be written as text, as Kafka's own property files write them.
    Raises ConfigError naming the setting and, for an unknown one, the nearest known name.
    """
    for name in settings:
        if name not in SETTING_NAMES:
            near = difflib.get_close_matches(name, SETTING_NAMES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"unknown setting {name!r}{hint}")
    merged = {**msgspec.to_builtins(base or GroupCoordinatorConfig()), **settings}
    try:
        return msgspec.convert(merged, GroupCoordinatorConfig, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"bad setting: {error}") from error
