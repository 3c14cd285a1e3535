"""The offsets in the Delta log of a topic's own table: of its files, and of the partitions' ends.

`pipeline.topics.segments` explains the format. This module does not import Arrow, because commands
that only query DuckDB read the ends of topics, too.
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
# An int32 that is not negative.
_NUMBER = re.compile("[0-9]{1,10}")


class SegmentBounds(Struct, rename="camel"):
    """The bounds of a file: it has offsets from `base` to `end` - 1, perhaps with gaps.

    Times are in ms.
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
    """Return a file's topic partition from its partition values; raises Failure if it is malformed.

    Without a value it is 0.
    """
    value = values.get("partition") or "0"
    if not _NUMBER.fullmatch(value):
        raise Failure(f"{path}: {value!r} is no partition")
    return int(value)


def log_end_id(partition: int) -> str:
    """Return the application id of a partition's log end.

    The version of this transaction identifier is the offset of the partition's next record.
    """
    return f"{LOG_END_PREFIX}{partition}"


def partition_of(app_id: str) -> int | None:
    """Return the partition of a log end's application id; None for other application ids."""
    prefix, number = app_id[: len(LOG_END_PREFIX)], app_id[len(LOG_END_PREFIX) :]
    return int(number) if prefix == LOG_END_PREFIX and _NUMBER.fullmatch(number) else None
