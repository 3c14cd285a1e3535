"""The consumer protocol: the bytes that members and their leader exchange through the group.

Versions 0-3 are written and read. A newer version is read as version 3, because it may only add
fields at the end (ConsumerProtocol.java). Version 1 added the owned partitions (KIP-429), version 2
the generation, version 3 the rack (KIP-881).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct as Packed
from typing import Any, NamedTuple

from msgspec import Struct

from group_coordinator.schemas.kafka.reading import InvalidMessage, reader
from group_coordinator.schemas.kafka.structs import struct
from group_coordinator.schemas.kafka.writing import NotEncodable, writer
from group_coordinator.schemas.messages import NO_GENERATION

PROTOCOL_TYPE = "consumer"
NEWEST_PROTOCOL_VERSION = 3

_VERSION = Packed(">h")
_SUBSCRIPTION, _ASSIGNMENT = "ConsumerProtocolSubscription", "ConsumerProtocolAssignment"


class ProtocolError(Exception):
    """Invalid bytes of a subscription or assignment, or one that cannot be encoded."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Subscription(Struct, frozen=True):
    """A member's subscription: the topics to assign, and the partitions that the member owns.

    `owned_partitions` are those that a cooperative member keeps while it rejoins; an eager member
    has none. `generation_id` is the generation that assigned them, -1 if unknown.
    `group_instance_id` is not encoded: the leader takes it from JoinGroup's answer.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    group_instance_id: str | None = None


class Assignment(Struct, frozen=True):
    """One member's assignment by the leader."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


class TopicPartitions(Struct):
    """The partitions of one topic, as the protocol groups them."""

    topic: str
    partitions: list[int]


# --- writing --------------------------------------------------------------------------------------


def encode_subscription(s: Subscription, version: int = NEWEST_PROTOCOL_VERSION) -> bytes:
    """Return a subscription's bytes, with topics and partitions sorted. Raises ProtocolError.

    An older version omits its unknown fields.
    """
    message = struct(_SUBSCRIPTION)(
        topics=sorted(s.topics),
        user_data=s.user_data,
        owned_partitions=group(sorted(s.owned_partitions)),
        generation_id=s.generation_id,
        rack_id=s.rack_id,
    )
    return _encode(_SUBSCRIPTION, version, message)


def encode_assignment(a: Assignment, version: int = NEWEST_PROTOCOL_VERSION) -> bytes:
    """Return an assignment's bytes, topics in order of appearance. Raises ProtocolError."""
    message = struct(_ASSIGNMENT)(group(a.partitions), a.user_data)
    return _encode(_ASSIGNMENT, version, message)


def group(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    """Group partitions by topic, in order of appearance."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return [TopicPartitions(topic, numbers) for topic, numbers in grouped.items()]


def _encode(name: str, version: int, message: Any) -> bytes:
    if not 0 <= version <= NEWEST_PROTOCOL_VERSION:
        raise ProtocolError(f"no {name} version {version} is known, only 0-3")
    try:
        return _VERSION.pack(version) + writer(name, version)(message)
    except NotEncodable as error:
        raise ProtocolError(str(error)) from error


# --- reading --------------------------------------------------------------------------------------


def decode_subscription(blob: bytes) -> Subscription:
    """Decode a subscription. An empty rack counts as none, as in Kafka. Raises ProtocolError."""
    read = _decode(_SUBSCRIPTION, blob)
    return Subscription(
        topics=read.topics,
        user_data=read.user_data,
        owned_partitions=flatten(read.owned_partitions),
        generation_id=max(read.generation_id, NO_GENERATION),
        rack_id=read.rack_id or None,
    )


def decode_assignment(blob: bytes) -> Assignment:
    """Decode an assignment. Raises ProtocolError, also for empty bytes.

    SyncGroup answers empty bytes to a member that the leader omitted.
    """
    read = _decode(_ASSIGNMENT, blob)
    return Assignment(flatten(read.assigned_partitions), read.user_data)


def flatten(grouped: Iterable[Any]) -> tuple[TopicPartition, ...]:
    """Return the single partitions of objects with the fields of `TopicPartitions`."""
    return tuple(TopicPartition(g.topic, number) for g in grouped for number in g.partitions)


def _decode(name: str, blob: bytes) -> Any:
    if len(blob) < _VERSION.size:
        raise ProtocolError(f"not {name}: {len(blob)} bytes, too short for a version")
    (version,) = _VERSION.unpack_from(blob)
    if version < 0:
        raise ProtocolError(f"not {name}: version {version}")
    try:
        return reader(name, min(version, NEWEST_PROTOCOL_VERSION))(blob, _VERSION.size)
    except InvalidMessage as error:
        raise ProtocolError(str(error)) from error
