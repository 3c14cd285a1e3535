"""Offset of a stream: its positions in the two tables, as Spark's log of offsets stores it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.coordinator.group.partition import PartitionSet
from group_coordinator.pipeline.delta import Position
from group_coordinator.schemas.unreadable import UNREADABLE


class Selection(Struct, frozen=True):
    """The requests that a stream reads: those of `partitions`, None for all, out of `of`.

    `passed_over` maps some partitions to a version of `requests`. The stream skips their requests
    up to that version, because the partition was claimed later. The former owner has answered these
    requests, and the bootstrap has those that still waited.
    """

    partitions: tuple[int, ...] | None = None
    of: int = 0
    passed_over: dict[int, int] = {}

    def at(self, version: int) -> PartitionSet | None:
        """Return the offsets partitions with requests to read in a version; None for all."""
        passed_over = {p for p, last in self.passed_over.items() if version <= last}
        if self.partitions is None and not passed_over:
            return None
        mine = range(self.of) if self.partitions is None else self.partitions
        return PartitionSet(frozenset(mine) - passed_over, self.of)

    def since(self, version: int) -> Selection:
        """Return the selection for versions from this one on."""
        later = {p: last for p, last in self.passed_over.items() if version <= last}
        return replace(self, passed_over=later)

    def has(self, partition: int) -> bool:
        """Whether the stream reads requests of an offsets partition at all."""
        return self.partitions is None or partition in self.partitions

    def missed_by(self, before: Selection, at: Position) -> dict[int, int]:
        """Return the partitions with requests that a stream at `at` has skipped, by `before`.

        Maps each to the version of `requests` from where its requests must be read. They were
        skipped because a stream continues with other requests while the events that load a
        partition are added to its bootstrap.
        """
        return {
            p: last + 1
            for p, last in self.passed_over.items()
            if self.has(p) and not before.has(p) and Position(last + 1) < at
        }


class Offset(Struct, frozen=True):
    """The position of a stream, as Spark's log of offsets stores it in JSON.

    The offset at the end of a batch also has the run of the query that planned the batch, and the
    batch's selection. It has the batch's `max.request.size` as well, None if an earlier release
    planned the batch. So a batch that is run again has the same events and refuses the same
    requests. It is decided by the same settings (`pipeline.stream.pinned_settings`), even if the
    node owns other partitions now.

    `missed` is the result of `Selection.missed_by` for the batch, which has these requests as well.
    """

    bootstrap: Position
    requests: Position
    run: int
    selection: Selection
    max_request_bytes: int | None = None
    missed: dict[int, int] = {}


class Planned(Struct, frozen=True):
    """The newest batch that a streaming checkpoint has planned, and its end, as JSON.

    `query_id` is the id under which the query writes its batches; None if the checkpoint has none.
    """

    batch_id: int
    offset: str
    query_id: str | None = None


def from_plain(plain: dict[str, Any]) -> Offset:
    """Convert decoded JSON to an offset. Raises msgspec.ValidationError."""
    return msgspec.convert(plain, Offset, str_keys=True)


def offset_of(text: str | dict[str, Any] | None) -> Offset | None:
    """Decode an offset as Spark reports it; return None for one of another source or release."""
    try:
        if isinstance(text, str):
            return msgspec.json.decode(text, type=Offset)
        return None if text is None else from_plain(text)
    except UNREADABLE:
        return None
