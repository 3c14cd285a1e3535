"""SelectionChange: an event of the bootstrap that changes which requests a running stream reads.

A node gains and releases offsets partitions while its query runs. The selection is therefore part
of the stream's data: an event in the bootstrap has the new selection. The batch that reads the
event selects by it, and all later batches do as well. Spark's log of offsets has the selection of
each batch (`pipeline.stream.offset`). So a batch that is run again selects the same requests.

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

from group_coordinator.coordinator.group.control import PREFIX
from group_coordinator.pipeline.stream.offset import Selection
from group_coordinator.pipeline.stream.packed import FIRST_KEY, KEY_WIDTH

# The group id of the event. No group has it, because the source does not pass the event on.
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
    """Split a page into its packed events and its change, None if it has no change."""
    if not rows.num_rows:
        return rows, None
    first = rows.column("event").slice(0, 1)
    if not pc.starts_with(first, _CHANGE)[0].as_py():
        return rows, None
    return rows.slice(1), _decode(first[0].as_py()[KEY_WIDTH:])
