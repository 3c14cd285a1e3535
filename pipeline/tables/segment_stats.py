"""Offsets in the Delta log of a topic's own table: bounds of files, and ends of partitions.

`pipeline.topics.segments` explains the format. Arrow is not imported, for commands that only query
DuckDB.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.errors import Failure
from group_coordinator.schemas.decoding import DECODE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG_END_PREFIX = "log-end/"
# A non-negative number of at most ten digits.
_NUMBER = re.compile("[0-9]{1,10}")


class SegmentBounds(Struct, rename="camel"):
    """The bounds of a file: its offsets are in `base` to `end` - 1, perhaps with gaps.

    Timestamps are in ms.
    """

    base: int
    end: int
    min_timestamp: int
    max_timestamp: int


class _Stats(Struct):
    segment: SegmentBounds | None = None


_decode = msgspec.json.Decoder(_Stats).decode


def decode_bounds(stats: str | None) -> SegmentBounds | None:
    """Return the bounds in a file's statistics; None for a file of another engine."""
    try:
        return _decode(stats).segment if stats else None
    except DECODE_ERRORS:
        return None


def partition_in(values: Mapping[str, str | None], path: str) -> int:
    """Return the topic partition in a file's partition values; 0 without a value.

    Raises Failure if it is malformed.
    """
    value = values.get("partition") or "0"
    if not _NUMBER.fullmatch(value):
        raise Failure(f"{path}: {value!r} is not a partition number")
    return int(value)


def log_end_id(partition: int) -> str:
    """Return the transaction identifier of a partition's log end.

    Its version is the offset of the partition's next record.
    """
    return f"{LOG_END_PREFIX}{partition}"


def partition_of(app_id: str) -> int | None:
    """Return the partition of a `log_end_id`; None for other transaction identifiers."""
    prefix, number = app_id[: len(LOG_END_PREFIX)], app_id[len(LOG_END_PREFIX) :]
    return int(number) if prefix == LOG_END_PREFIX and _NUMBER.fullmatch(number) else None
