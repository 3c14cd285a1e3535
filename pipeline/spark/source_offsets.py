"""Decoding of a source's end offset in the progress of a Spark streaming query."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

_DELTA = re.compile(r"DeltaSource\[(?P<table>.*)\]", re.DOTALL)
_KAFKA = re.compile(r"KafkaV?\d*\[")
_RATE = re.compile(r"RateStream|RatePerMicroBatch")
# The topic of rate sources, because Spark gives these sources no name.
RATE_TOPIC = "rate"


class DeltaPosition(Struct, frozen=True):
    """The position of a Delta source: it has read all versions of the table before `version`."""

    table: str
    version: int


class SourceOffsets(Struct, frozen=True):
    """The position of a source: for a topic and partition, the offset of the next record."""

    offsets: dict[tuple[str, int], int]


class _DeltaOffset(Struct, rename="camel"):
    reservoir_version: int
    is_starting_version: bool = False


def read_source(description: str, end_offset: str | None) -> SourceOffsets | DeltaPosition | None:
    """Return a source's position, from the `description` and `endOffset` of its progress.

    Return None if the source has read nothing, or is of an unknown kind. Return None also while a
    Delta source reads its table's initial snapshot, because a position within it is not a version.
    A version that is read in part counts as unread.
    """
    try:
        told: Any = msgspec.json.decode(end_offset or "null")
        delta = _DELTA.match(description)
        if told is None:
            return None
        if delta is not None:
            position = msgspec.convert(told, _DeltaOffset)
            if position.is_starting_version:
                return None
            return DeltaPosition(delta["table"], position.reservoir_version)
        if _KAFKA.match(description):
            topics = msgspec.convert(told, dict[str, dict[int, int]], strict=False)
            return SourceOffsets(
                {
                    (topic, partition): offset
                    for topic, partitions in topics.items()
                    for partition, offset in partitions.items()
                }
            )
        if _RATE.match(description):
            offset = told["offset"] if isinstance(told, dict) else told
            return SourceOffsets({(RATE_TOPIC, 0): msgspec.convert(offset, int)})
    except (msgspec.DecodeError, KeyError):
        return None
    return None
