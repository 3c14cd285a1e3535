"""How far a stream has read its two tables: what Spark's log of offsets keeps of a batch."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from coordinator.group.partition import PartitionSet
from pipeline.delta.tail import Position


class Selection(Struct, frozen=True):
    """Whose requests a stream reads: those of `partitions`, None for all, of `of` in all."""

    partitions: tuple[int, ...] | None = None
    of: int = 0

    def partition_set(self) -> PartitionSet | None:
        """The offsets partitions whose requests are read; None for all."""
        if self.partitions is None:
            return None
        return PartitionSet(frozenset(self.partitions), self.of)


class Offset(Struct, frozen=True):
    """How far a stream has read, as Spark's log of offsets keeps it in JSON.

    The offset at which a batch ends also says which run of the query planned the batch, and what it
    selected. So a batch that is run again has the same events, and is decided by the same settings
    (`pipeline.stream.pinned_settings`), whatever the node owns by then.
    """

    bootstrap: Position
    requests: Position
    run: int
    selection: Selection


class Planned(Struct, frozen=True):
    """The last batch that a streaming checkpoint has planned, and where it ends, as JSON."""

    batch_id: int
    offset: str


def offset_of(text: str | dict[str, Any] | None) -> Offset | None:
    """Read an offset as Spark reports it; None for one of another source or release."""
    try:
        if isinstance(text, str):
            return msgspec.json.decode(text, type=Offset)
        return msgspec.convert(text, Offset)
    except msgspec.MsgspecError:
        return None
