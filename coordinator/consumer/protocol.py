"""The consumer protocol: the bytes that members and their leader exchange through the group.

Versions 0-3 are written and read. A newer version is read as version 3: it may only add fields at
the end (ConsumerProtocol.java), and bytes after the known fields are ignored. Version 1 added the
owned partitions (KIP-429), 2 the generation, 3 the rack (KIP-881). The coordinator reads only the
topics: see `coordinator.group.subscription`.
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

from group_coordinator.schemas.messages import NO_GENERATION, Int32

PROTOCOL_TYPE = "consumer"
NEWEST_PROTOCOL_VERSION = 3

_VERSION = struct.Struct(">h")
# What kafka-python raises, unwrapped, for bytes, text or numbers that do not fit a field.
_MISFITS = (struct.error, ValueError, TypeError, AttributeError, msgspec.ValidationError)

T = TypeVar("T")


class ProtocolError(Exception):
    """Bytes that are no subscription or assignment, or one that cannot be encoded; says why."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Subscription(Struct, frozen=True):
    """What a member tells the leader: the topics it wants, and the partitions it owns.

    `owned_partitions` are those that it keeps while it rejoins, none for an eager member.
    `generation_id` is the generation that assigned them, -1 if unknown. `group_instance_id` is not
    part of the bytes: the leader takes it from JoinGroup's list of members.
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
    """Return a subscription's bytes, with topics and partitions sorted. Raises ProtocolError.

    Fields that an older version does not have are left out.
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
    """Return an assignment's bytes, topics in order of appearance. Raises ProtocolError."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=group(ConsumerProtocolAssignment.TopicPartition, a.partitions),
        user_data=a.user_data,
    )
    return _encode(message, version)


def group(entry: Any, partitions: Iterable[TopicPartition]) -> list[Any]:
    """Group partitions by topic, in order of appearance; `entry` is kafka-python's class."""
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
    """The partitions of one topic, as the protocol groups them."""

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
    """Read a subscription. An empty rack is none, as for Kafka's leader. Raises ProtocolError."""
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

    Empty bytes, which SyncGroup answers to a member that the leader left out, are an error too: the
    caller decides what they mean.
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
    """Read the fields of one of kafka-python's messages at `version`. Raises ProtocolError.

    Bytes after the last field are ignored. kafka-python accepts truncated text and bytes, and
    lengths below -1: they are found by encoding the fields again, which must give `body`'s start.
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
