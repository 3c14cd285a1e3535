"""A stream's offset: how far it has read its two tables, as Spark's log of offsets keeps it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.coordinator.group.partition import PartitionSet
from group_coordinator.pipeline.delta.tail import Position
from group_coordinator.schemas.unreadable import UNREADABLE


class Selection(Struct, frozen=True):
    """Which requests a stream reads: those of `partitions`, None for all, of `of` in all.

    `passed_over` maps some partitions to a version of `requests`. The stream passes over their
    requests up to that version: the partition was claimed later, and the bootstrap has those that
    still waited. Its owner before had answered the others.
    """

    partitions: tuple[int, ...] | None = None
    of: int = 0
    passed_over: dict[int, int] = {}

    def at(self, version: int) -> PartitionSet | None:
        """The offsets partitions whose requests are read of a version; None for all."""
        passed_over = {p for p, last in self.passed_over.items() if version <= last}
        if self.partitions is None and not passed_over:
            return None
        mine = range(self.of) if self.partitions is None else self.partitions
        return PartitionSet(frozenset(mine) - passed_over, self.of)

    def since(self, version: int) -> Selection:
        """The selection for versions from this one on."""
        later = {p: last for p, last in self.passed_over.items() if version <= last}
        return replace(self, passed_over=later)

    def has(self, partition: int) -> bool:
        """Whether requests of an offsets partition are read at all."""
        return self.partitions is None or partition in self.partitions

    def missed_by(self, before: Selection, at: Position) -> dict[int, int]:
        """The partitions of which a stream at `at` that read by `before` has not read everything.

        Each with the version of `requests` from which on its requests are wanted: while a running
        stream's bootstrap gets what loads a partition, the stream goes on with other requests.
        """
        return {
            p: last + 1
            for p, last in self.passed_over.items()
            if self.has(p) and not before.has(p) and Position(last + 1) < at
        }


class Offset(Struct, frozen=True):
    """How far a stream has read, as Spark's log of offsets keeps it in JSON.

    The offset at which a batch ends also says which run of the query planned the batch, what it
    selected, and its `max.request.size`, None where an earlier release planned the batch. So a
    batch that is run again has the same events, refuses the same requests, and is decided by the
    same settings (`pipeline.stream.pinned_settings`), whatever the node owns by then.

    `missed` is what `Selection.missed_by` gave for the batch: it has these requests, too.
    """

    bootstrap: Position
    requests: Position
    run: int
    selection: Selection
    max_request_bytes: int | None = None
    missed: dict[int, int] = {}


class Planned(Struct, frozen=True):
    """The last batch that a streaming checkpoint has planned, and where it ends, as JSON.

    `query_id` is the id under which the query writes its batches; None if the checkpoint has none.
    """

    batch_id: int
    offset: str
    query_id: str | None = None


def from_plain(plain: dict[str, Any]) -> Offset:
    """Read an offset from what JSON has of it; raises msgspec.ValidationError."""
    return msgspec.convert(plain, Offset, str_keys=True)


def offset_of(text: str | dict[str, Any] | None) -> Offset | None:
    """Read an offset as Spark reports it; None for one of another source or release."""
    try:
        if isinstance(text, str):
            return msgspec.json.decode(text, type=Offset)
        return None if text is None else from_plain(text)
    except UNREADABLE:
        return None
