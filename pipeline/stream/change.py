"""A change of what a running stream reads: an event of its bootstrap.

A node gains and gives away offsets partitions while its query runs. What the query selects is
therefore data: an event in the bootstrap has the new selection, and the batch that reads the event
selects by it, as does every later one. The end of each batch says in Spark's log of offsets by what
the batch has selected (`pipeline.stream.offset`), so a batch that is run again selects the same.

The event is the first row of a row group. A batch that reads it takes the rest of the event's
commit, however large, and nothing else of the bootstrap, and selects by it at once: so what unloads
groups is in the same batch in which their requests are no longer read, and no batch has two
changes. What loads groups comes in row groups before the event, and may take many batches; until
the event the query goes on with the requests that it selected before.

An event is for one run of the query. A later run begins with a selection of its own, and passes
over events that were meant for an earlier run.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from group_coordinator.coordinator.group.control import PREFIX
from group_coordinator.pipeline.stream.offset import Selection
from group_coordinator.pipeline.stream.packed import FIRST_KEY, KEY_WIDTH

# The group of the event: nobody's, for the source keeps the event to itself.
CHANGE_GROUP = "__coordinator_change"
_CHANGE = f'{FIRST_KEY}{PREFIX}:"change"'


class SelectionChange(Struct, frozen=True, tag_field="control", tag="change"):
    """The selection of a run of the query from this event on."""

    run: int
    selection: Selection


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SelectionChange).decode


def change_row(change: SelectionChange) -> tuple[str, str]:
    """Return a change as a row of the bootstrap: group and packed event."""
    return CHANGE_GROUP, FIRST_KEY + _encode(change).decode()


def taken_out(rows: pa.Table) -> tuple[pa.Table, SelectionChange | None]:
    """Return the packed events of a page without the change, and the change, if there is one."""
    if not rows.num_rows:
        return rows, None
    first = rows.column("event").slice(0, 1)
    if not pc.starts_with(first, _CHANGE)[0].as_py():
        return rows, None
    return rows.slice(1), _decode(first[0].as_py()[KEY_WIDTH:])
