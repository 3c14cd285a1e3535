"""Packed events: a request event in the stream is a single string, with its group's id.

A group's rows reach the coordinator in no order, and each column adds cost on its way to Python. So
a row becomes `<order key><event as JSON>`. Sorting the strings gives the order; removing the first
`KEY_WIDTH` characters gives the event. `pipeline.stream.packing` packs.

The order within a group and batch is that of the table's commits, and within a commit that of its
rows: the key is a row's number in the batch. No clock decides the order. The request that was
committed first is decided first, even if producers' clocks differ by a minute, or one steps back. A
Kafka broker also decides in the order of arrival. A batch that is run again has the same rows in
the same order.

A take-over is the exception: it reads rows of a table after its files were rewritten. It orders by
`sent_at` in microseconds, events without one last, and then by the event's text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from group_coordinator.pipeline.stream.group_partitions import in_partitions

if TYPE_CHECKING:
    from group_coordinator.coordinator.group.partition import PartitionSet

# The digits of a row's number, and of the microseconds since 1970 of any Spark timestamp.
KEY_WIDTH = 18
# The key of the coordinator's own control events, which come before every request.
FIRST_KEY = "0" * KEY_WIDTH
# The key of an event of a take-over that has no `sent_at`: after those that have one.
NO_TIME = "8" * KEY_WIDTH
# The number of the first request in a batch that also has events of the bootstrap: after all of
# them.
AFTER_BOOTSTRAP: int = 9 * 10 ** (KEY_WIDTH - 1)
# The number of the first request after those that a stream had missed of a new partition.
AFTER_MISSED: int = AFTER_BOOTSTRAP + 5 * 10 ** (KEY_WIDTH - 2)
# A bootstrap has one event a row. The stream has all events of a group in one row, one a line.
PACKED_SCHEMA = pa.schema({"group_id": pa.string(), "event": pa.string()})
STREAM_COLUMNS = ("group_id", "events")


def unpack(rows: list[str]) -> list[str]:
    """Return a group's events as JSON texts in order, from rows of packed events, one a line."""
    return [event[KEY_WIDTH:] for event in sorted("\n".join(rows).split("\n"))] if rows else []


def of_partitions(events: pa.Table, partition_set: PartitionSet | None) -> pa.Table:
    """Return the packed events of the groups of a partition set; None returns all events."""
    if partition_set is None:
        return events
    return events.filter(in_partitions(events.column("group_id").combine_chunks(), partition_set))
