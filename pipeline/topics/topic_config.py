"""Topic configs of a topic with its own table, with Kafka's names and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from group_coordinator.coordinator.config import (
    ConfigError,
    KafkaSettings,
    NonNegativeLong,
    names_of,
    typed,
)
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

_FromMinusOne = Annotated[int, Meta(ge=-1)]


class InvalidConfig(Failure):
    """A topic config that is unknown, or has an invalid value. Kafka's error 40."""


class TopicConfig(KafkaSettings, frozen=True, kw_only=True):
    """Settings for the retention and validation of a topic's records.

    Times in ms; -1: no limit. `retention_bytes` is for each partition. `max_message_bytes` is the
    largest record batch, in bytes as its producer sent it. `message_timestamp_after_max_ms` limits
    how far a record's timestamp may be ahead of the gateway's clock.
    """

    retention_ms: _FromMinusOne = 7 * 86_400_000
    retention_bytes: _FromMinusOne = -1
    max_message_bytes: NonNegativeLong = 1_048_588
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    message_timestamp_after_max_ms: NonNegativeLong = 3_600_000
    # Topics are not compacted, and Parquet's compression is not the producer's.
    cleanup_policy: Literal["delete"] = "delete"
    compression_type: Literal["producer"] = "producer"


KNOWN = names_of(TopicConfig)


def parse_config(given: Mapping[str, str | None]) -> TopicConfig:
    """Parse configs given as strings; None means the default. Raises InvalidConfig."""
    unknown = sorted(given.keys() - set(KNOWN))
    if unknown:
        raise InvalidConfig(f"unknown topic config {unknown[0]!r}; known are {', '.join(KNOWN)}")
    values = {name: value for name, value in given.items() if value is not None}
    try:
        return typed(TopicConfig, values)
    except ConfigError as error:
        raise InvalidConfig(f"topic config: {error}") from error


def encode_config(given: Mapping[str, str | None]) -> str:
    """Return the configs that are not None as a definition's JSON. Raises InvalidConfig."""
    parse_config(given)
    values = {name: value for name, value in given.items() if value is not None}
    return msgspec.json.encode(values, order="sorted").decode()


def decode_config(text: str) -> TopicConfig:
    """Parse a definition's JSON; ignore configs of later releases."""
    values = msgspec.json.decode(text, type=dict[str, str | None])
    return parse_config({name: values[name] for name in values.keys() & set(KNOWN)})
