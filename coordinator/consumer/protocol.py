"""The consumer protocol: the bytes that members and their leader send each other through the group.

Versions 0-3 are written. Read are those and newer ones, whose fields version 3 begins with: a new
version may only add fields at the end (ConsumerProtocol.java), so what follows the known fields is
passed over. Version 1 added the owned partitions (KIP-429), 2 the generation, 3 the rack (KIP-881).
The coordinator itself reads no more than the topics: see `coordinator.group.subscription`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from io import BytesIO
from typing import Any, NamedTuple, TypeVar

import msgspec
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from msgspec import Struct

from schemas.messages import NO_GENERATION, Int32

PROTOCOL_TYPE = "consumer"
NEWEST_PROTOCOL_VERSION = 3

_VERSION = struct.Struct(">h")
# What kafka-python lets through of bytes, text or numbers that do not fit a field.
_MISFITS = (struct.error, ValueError, TypeError, AttributeError, msgspec.ValidationError)

T = TypeVar("T")


class ProtocolError(Exception):
    """Bytes that are no subscription or assignment, or one that bytes cannot hold; says why."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Subscription(Struct, frozen=True):
    """What a member tells the leader.

    `owned_partitions` are those it holds on to while it rejoins: none, if it is eager.
    `generation_id` is the one in which it got them, -1 if unknown. `group_instance_id` is not in
    the bytes: the leader takes it from JoinGroup's list of members (`msgspec.structs.replace`).
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    group_instance_id: str | None = None


class Assignment(Struct, frozen=True):
    """What the leader gives to one member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


# --- writing --------------------------------------------------------------------------------------


def encode_subscription(s: Subscription, version: int = NEWEST_PROTOCOL_VERSION) -> bytes:
    """Return a subscription's bytes, topics and owned partitions in order. Raises ProtocolError.

    What an older version has no field for is left out.
    """
    message = ConsumerProtocolSubscription(
        topics=sorted(s.topics),
        user_data=s.user_data,
        owned_partitions=group(
            ConsumerProtocolSubscription.TopicPartition, sorted(s.owned_partitions)
        ),
        generation_id=s.generation_id,
        rack_id=s.rack_id,
    )
    return _encode(message, version)


def encode_assignment(a: Assignment, version: int = NEWEST_PROTOCOL_VERSION) -> bytes:
    """Return an assignment's bytes, topics in the order they first come. Raises ProtocolError."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=group(ConsumerProtocolAssignment.TopicPartition, a.partitions),
        user_data=a.user_data,
    )
    return _encode(message, version)


def group(entry: Any, partitions: Iterable[TopicPartition]) -> list[Any]:
    """The partitions by topic, in the order topics first come; `entry` is kafka-python's class."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return [entry(topic=topic, partitions=numbers) for topic, numbers in grouped.items()]


def _encode(message: Any, version: int) -> bytes:
    if not 0 <= version <= NEWEST_PROTOCOL_VERSION:
        raise ProtocolError(f"no {message.name} version {version} is known, only 0-3")
    try:
        encoded: bytes = message.encode(version=version)
    except _MISFITS as error:
        raise ProtocolError(f"no {message.name} can hold this: {error}") from error
    return encoded


# --- reading --------------------------------------------------------------------------------------


class TopicPartitions(Struct):
    """The partitions of one topic, as they are written."""

    topic: str
    partitions: tuple[Int32, ...]


class _Subscription(Struct):
    topics: tuple[str, ...]
    user_data: bytes | None
    owned_partitions: tuple[TopicPartitions, ...]
    generation_id: Int32
    rack_id: str | None


class _Assignment(Struct):
    assigned_partitions: tuple[TopicPartitions, ...]
    user_data: bytes | None


def decode_subscription(blob: bytes) -> Subscription:
    """Read a subscription. Raises ProtocolError. An empty rack is none, as for Kafka's leader."""
    read = _decode(ConsumerProtocolSubscription, blob, _Subscription)
    return Subscription(
        topics=read.topics,
        user_data=read.user_data,
        owned_partitions=flatten(read.owned_partitions),
        generation_id=max(read.generation_id, NO_GENERATION),
        rack_id=read.rack_id or None,
    )


def decode_assignment(blob: bytes) -> Assignment:
    """Read an assignment. Raises ProtocolError.

    No bytes at all are no assignment: a leader that skips a member leaves it none (SyncGroup then
    answers with empty bytes), and what that means is the caller's to say.
    """
    read = _decode(ConsumerProtocolAssignment, blob, _Assignment)
    return Assignment(flatten(read.assigned_partitions), read.user_data)


def flatten(grouped: tuple[TopicPartitions, ...]) -> tuple[TopicPartition, ...]:
    """The partitions of all topics, one by one."""
    return tuple(TopicPartition(g.topic, number) for g in grouped for number in g.partitions)


def _decode(message: Any, blob: bytes, as_type: type[T]) -> T:
    if len(blob) < _VERSION.size:
        raise ProtocolError(f"not {message.name}: {len(blob)} bytes, too short for a version")
    (version,) = _VERSION.unpack_from(blob)
    if version < 0:
        raise ProtocolError(f"not {message.name}: version {version}")
    body = blob[_VERSION.size :]
    return read_message(message, body, min(version, NEWEST_PROTOCOL_VERSION), as_type)


def read_message(message: Any, body: bytes, version: int, as_type: type[T]) -> T:
    """Read the fields of one of kafka-python's messages, as of `version`. Raises ProtocolError.

    Bytes after the last field are passed over. kafka-python reads text and bytes that are cut
    short, and lengths below -1, without a word: so what was read must be what would be written.
    """
    try:
        read = message.decode(BytesIO(body), version=version, header=False)
        fields = msgspec.convert(read, as_type, from_attributes=True)
        written = read.encode(version=version, header=False)
    except _MISFITS as error:
        raise ProtocolError(f"not {message.name} version {version}: {error}") from error
    if not body.startswith(written):
        raise ProtocolError(f"not {message.name} version {version}: cut short, or a wrong length")
    return fields
