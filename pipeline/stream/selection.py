"""The selection of the requests that a stream reads, and the event that changes it.

A node gains and releases offsets partitions while its query runs. The selection is therefore part
of the stream's data: an event in the bootstrap, a `SelectionChange`, has the new selection. The
batch that reads the event selects by it, and all later batches do as well. Spark's log of offsets
has the selection of each batch (`pipeline.stream.offset`). So a batch that is run again selects the
same requests.

The event is the first row of a row group. A batch that reads it also takes the rest of the event's
commit, however large, and no later commit of the bootstrap. The batch selects by the event at once.
So groups are unloaded in the same batch in which their requests are no longer read, and no batch
has two changes. The events that load groups are in row groups before the change, and may take many
batches. Until the change, the query continues with its previous selection.

A change applies to one run of the query. A later run begins with another selection, and ignores
changes for an earlier run.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.coordinator.group.control import PREFIX
from group_coordinator.coordinator.group.partition import PartitionSet
from group_coordinator.pipeline.delta import Position
from group_coordinator.pipeline.stream.packed_events import FIRST_KEY, KEY_WIDTH

# The group id of the event. No group has it, because the source does not pass the event on.
CHANGE_GROUP = "__coordinator_change"
_CHANGE = f'{FIRST_KEY}{PREFIX}:"change"'


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
        """Return whether the stream reads requests of a partition of the offsets topic."""
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


class SelectionChange(Struct, frozen=True, tag_field="control", tag="change"):
    """The control event after which a run of the query reads by another selection."""

    run: int
    selection: Selection


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SelectionChange).decode


def change_row(change: SelectionChange) -> tuple[str, str]:
    """Return a change as a row of the bootstrap: group and packed event."""
    return CHANGE_GROUP, FIRST_KEY + _encode(change).decode()


def split_change(rows: pa.Table) -> tuple[pa.Table, SelectionChange | None]:
    """Split a page into its packed events and its change, None if it has no change."""
    if not rows.num_rows:
        return rows, None
    first = rows.column("event").slice(0, 1)
    if not pc.starts_with(first, _CHANGE)[0].as_py():
        return rows, None
    return rows.slice(1), _decode(first[0].as_py()[KEY_WIDTH:])
