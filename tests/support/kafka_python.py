"""kafka-python's codec of Kafka's messages, with which the project's own codec is compared."""

from __future__ import annotations

import struct
import types
from functools import cache
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.consumer.metadata
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
from kafka.protocol.api_data import ApiData
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.schemas import load_json

# The errors that kafka-python raises for bytes that are no message.
UNREADABLE = (
    ValueError, TypeError, IndexError, KeyError, OverflowError, AssertionError, struct.error,
)  # fmt: skip
_PLACES = (
    kafka.protocol.admin,
    kafka.protocol.admin.groups,
    kafka.protocol.consumer,
    kafka.protocol.consumer.group,
    kafka.protocol.consumer.metadata,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)


@cache
def message(name: str) -> Any:
    """Return kafka-python's class of a message.

    It has no classes of records and of the newest APIs: they are made from the schemas of this
    project.
    """
    if name == StickyAssignorUserData.__name__:
        return StickyAssignorUserData
    for place in _PLACES:
        if hasattr(place, name):
            return getattr(place, name)
    kind = ApiMessage if name.endswith(("Request", "Response")) else ApiData
    return types.new_class(name, (kind,), {"load_json": "group_coordinator.schemas.kafka"})


def encode(found: Any, version: int) -> bytes:
    """Write a message of kafka-python without a header."""
    flexible = found.flexible_version_q(version)
    return bytes(found._struct.encode(found, version=version, compact=flexible, tagged=flexible))


def decode(name: str, version: int, frame: bytes) -> tuple[Any, int]:
    """Read a message; return it and its end. Raises one of UNREADABLE."""
    kind = message(name)
    flexible = kind.flexible_version_q(version)
    read = kind._struct.compiled_decode_from(
        version, compact=flexible, tagged=flexible, data_class=kind
    )
    found, end = read(memoryview(frame), 0)
    if end > len(frame):
        raise ValueError("longer than its frame")
    return found, int(end)


def json_of(name: str) -> dict[str, Any]:
    """Return a message's schema as kafka-python ships it, before its own changes."""
    sticky = name == StickyAssignorUserData.__name__
    found = load_json(name, package="kafka.coordinator.assignors.sticky" if sticky else None)
    return {key: value for key, value in found.items() if key not in ("license", "doc")}
