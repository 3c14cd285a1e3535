"""Packed events: how the stream has request events, each one a single string beside its group's id.

A group's rows reach the coordinator in no order, and each column costs on its way to Python. So a
row becomes `<order key><event as JSON>`: sorting the strings gives the order, and cutting off
`KEY_WIDTH` characters gives the event. `pipeline.stream.packing` packs.

The order within a group and batch: by `sent_at` to the microsecond, events without one last; then
by the event's text, which begins with its request_id. All of it is in the table, so that a batch
that is read again is ordered the same. A producer that sends many events in one millisecond numbers
them in the microseconds (`schemas.tables.to_requests`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from coordinator.group.partition import PartitionSet

# Microseconds since 1970 of any timestamp that Spark can hold have up to 18 digits.
KEY_WIDTH = 18
# The key of what comes before every request: the coordinator's own control events.
FIRST_KEY = "0" * KEY_WIDTH
NO_TIME = "9" * KEY_WIDTH
# A bootstrap has an event a row. The stream has all events of a group in one row, one a line.
PACKED_SCHEMA = pa.schema({"group_id": pa.string(), "event": pa.string()})
STREAM_COLUMNS = ("group_id", "events")


def unpack(rows: list[str]) -> list[str]:
    """Return a group's events, packed and one a line, as JSON texts in their order."""
    return [event[KEY_WIDTH:] for event in sorted("\n".join(rows).split("\n"))] if rows else []


def of_partitions(events: pa.Table, partition_set: PartitionSet | None) -> pa.Table:
    """Return the packed events of the groups of some offsets partitions, all of them for None."""
    if partition_set is None:
        return events
    groups = events.column("group_id")
    mine = [group for group in groups.unique().to_pylist() if partition_set.has_group(group)]
    return events.filter(pc.is_in(groups, pa.array(mine, pa.string())))
