"""Packed events: a request event in the stream is a single string beside its group's id.

A group's rows reach the coordinator in no order, and each column costs on its way to Python. So a
row becomes `<order key><event as JSON>`: sorting the strings gives the order, and cutting off
`KEY_WIDTH` characters gives the event. `pipeline.stream.packing` packs.

The order within a group and batch is that of the table's commits, and within a commit that of its
rows: the key is a row's number in the batch. No clock decides it. Of two producers whose clocks
differ by a minute, or of one whose clock steps back, the request that was committed first is
decided first, as a Kafka broker decides in the order of arrival. A batch that is run again has the
same rows in the same order. Only a take-over, which reads rows of a table whose files were
rewritten since, orders by `sent_at` to the microsecond, events without one last, and then by the
event's text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from group_coordinator.pipeline.stream.group_partitions import in_partitions

if TYPE_CHECKING:
    from group_coordinator.coordinator.group.partition import PartitionSet

# The digits of a row's number, and of the microseconds since 1970 of any timestamp of Spark's.
KEY_WIDTH = 18
# The key of what comes before every request: the coordinator's own control events.
FIRST_KEY = "0" * KEY_WIDTH
# The key of an event of a take-over that has no `sent_at`: after those that have one.
NO_TIME = "8" * KEY_WIDTH
# The number of the first request in a batch that has events of the bootstrap too: after all those.
AFTER_BOOTSTRAP: int = 9 * 10 ** (KEY_WIDTH - 1)
# The number of the first request after those that a stream had missed of a new partition.
AFTER_MISSED: int = AFTER_BOOTSTRAP + 5 * 10 ** (KEY_WIDTH - 2)
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
    return events.filter(in_partitions(events.column("group_id").combine_chunks(), partition_set))
