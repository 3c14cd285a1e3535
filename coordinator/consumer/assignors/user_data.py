"""The user data that the sticky assignors put into a member's subscription.

Source: StickyAssignor (version 0: the previous assignment; version 1: also its generation) and
CooperativeStickyAssignor (version 0: the generation). The bytes do not say their version: a reader
tries the newest first. Bytes that cannot be read count as no claim, as in Kafka, so that a member
with another client library cannot stop the group's assignment.

kafka-python 3.0 puts a version number before its own sticky user data; Kafka's members cannot read
it, and neither can this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Packed

from msgspec import Struct

from group_coordinator.coordinator.consumer.protocol import TopicPartition, flatten, group
from group_coordinator.schemas.kafka.reading import InvalidMessage, reader
from group_coordinator.schemas.kafka.structs import struct
from group_coordinator.schemas.kafka.writing import writer
from group_coordinator.schemas.messages import NO_GENERATION

_GENERATION = Packed(">i")
_STICKY = "StickyAssignorUserData"


class Claim(Struct, frozen=True):
    """The partitions that a member says it owned, and their generation, -1 if unknown."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


def encode_claim(partitions: Sequence[TopicPartition], generation: int) -> bytes:
    """Return `sticky`'s user data, version 1."""
    return writer(_STICKY, 1)(struct(_STICKY)(group(partitions), generation))


def decode_claim(user_data: bytes | None) -> Claim:
    """Read `sticky`'s user data, version 1 or 0; bytes that cannot be read claim nothing."""
    if not user_data:
        return Claim()
    for version in (1, 0):
        try:
            read = reader(_STICKY, version)(user_data, 0)
        except InvalidMessage:
            continue
        return Claim(flatten(read.previous_assignment), max(read.generation, NO_GENERATION))
    return Claim()


def encode_generation(generation: int) -> bytes:
    """Return `cooperative-sticky`'s user data."""
    return _GENERATION.pack(generation)


def decode_generation(user_data: bytes | None) -> int:
    """Read `cooperative-sticky`'s user data; -1 if it cannot be read."""
    if user_data is None or len(user_data) < _GENERATION.size:
        return NO_GENERATION
    (generation,) = _GENERATION.unpack_from(user_data)
    return max(int(generation), NO_GENERATION)
