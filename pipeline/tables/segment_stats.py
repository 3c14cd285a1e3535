"""What the log of a topic's own table says of offsets: in a file's statistics, and of log ends.

`pipeline.topics.segments` says why. Nothing here needs Arrow: commands that only ask DuckDB read
the ends of topics too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.errors import Failure
from group_coordinator.schemas.unreadable import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG_END_PREFIX = "log-end/"
# An int32 that is not negative.
_NUMBER = re.compile("[0-9]{1,10}")


class SegmentBounds(Struct, rename="camel"):
    """Offsets `base` to `end` - 1 of a file, not necessarily all; times in ms."""

    base: int
    end: int
    min_timestamp: int
    max_timestamp: int


class _Stats(Struct):
    segment: SegmentBounds | None = None


_decode = msgspec.json.Decoder(_Stats).decode


def decode_bounds(stats: str | None) -> SegmentBounds | None:
    """Return what a file's statistics say of its offsets, None for another engine's file."""
    try:
        return _decode(stats).segment if stats else None
    except UNREADABLE:
        return None


def partition_in(values: Mapping[str, str | None], path: str) -> int:
    """Return the partition of a file, by its values of partition columns. Raises Failure."""
    value = values.get("partition") or "0"
    if not _NUMBER.fullmatch(value):
        raise Failure(f"{path}: {value!r} is no partition")
    return int(value)


def log_end_id(partition: int) -> str:
    """The transaction identifier whose version is the offset of a partition's next record."""
    return f"{LOG_END_PREFIX}{partition}"


def partition_of(app_id: str) -> int | None:
    """Return the partition whose log end a transaction identifier is of, None for another one."""
    prefix, number = app_id[: len(LOG_END_PREFIX)], app_id[len(LOG_END_PREFIX) :]
    return int(number) if prefix == LOG_END_PREFIX and _NUMBER.fullmatch(number) else None
