"""What the log of a topic's own table says of offsets: in a file's statistics, and of log ends.

`pipeline.topics.segments` says why. Nothing here needs Arrow: commands that only ask DuckDB read
the ends of topics too.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

LOG_END_PREFIX = "log-end/"


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
    return _decode(stats).segment if stats else None


def log_end_id(partition: int) -> str:
    """The transaction identifier whose version is the offset of a partition's next record."""
    return f"{LOG_END_PREFIX}{partition}"


def partition_of(app_id: str) -> int | None:
    """Return the partition whose log end a transaction identifier is of, None for another one."""
    if not app_id.startswith(LOG_END_PREFIX):
        return None
    return int(app_id.removeprefix(LOG_END_PREFIX))
