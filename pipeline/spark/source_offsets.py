"""What the progress of a streaming query says of each of its sources, as Spark writes it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

_DELTA = re.compile(r"DeltaSource\[(?P<table>.*)\]", re.DOTALL)
_KAFKA = re.compile(r"KafkaV?\d*\[")
_RATE = re.compile(r"RateStream|RatePerMicroBatch")
# The topic of rate sources, which have no name of their own.
RATE_TOPIC = "rate"


class DeltaPosition(Struct, frozen=True):
    """A Delta source has read all versions of a table before this one."""

    table: str
    version: int


class SourceOffsets(Struct, frozen=True):
    """A source has read up to these offsets: topic, partition, the offset of the next record."""

    offsets: dict[tuple[str, int], int]


class _DeltaOffset(Struct, rename="camel"):
    reservoir_version: int
    is_starting_version: bool = False


def read_source(description: str, end_offset: str | None) -> SourceOffsets | DeltaPosition | None:
    """Return how far a source is, from the `description` and `endOffset` of its progress.

    None for a source that has read nothing, for one of another kind, and for a Delta source that is
    within the rows that its table had at the start: what is left of them has no version of its own.
    Of a version that is read in part, nothing counts as read.
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
