"""Appends to the table `requests`, and the layout of its files.

Each coordinator decides the groups of some offsets partitions. A file has a tag: the partitions of
the requests in each of its row groups. So a coordinator opens only the files, and reads only the
row groups, with requests for its partitions.

* Writers do not know `offsets.topic.num.partitions`, so the tag has *slots*: the offsets partitions
  that groups would have if there were `SLOTS` partitions. For another number, slots and partitions
  are compared modulo their greatest common divisor: a coordinator may read a row group in vain, but
  never skips a request for its partitions.
* A file of at least two times `LANE_ROWS` rows is sorted by slot, with a row group for each *lane*,
  a range of slots. The sort is stable, so requests of a group keep their order; decisions depend on
  no other order (`pipeline.stream.packed_events`).
* Columns with only nulls are left out, because each costs time in writer and reader; Delta reads
  them as null. A file of heartbeats needs 7 of 49 leaf columns.

A file without a valid tag, from another writer or a rewrite, is read completely, and requests of
other coordinators' groups are dropped by group id. If a tag wrongly omits a partition, its owner
sees the requests only when it takes over from the tables. This harms only the tag's writer.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from group_coordinator.coordinator.group.partition import PartitionSet, partition_for
from group_coordinator.pipeline.delta import Appender, Layout, open_store, write_rows
from group_coordinator.pipeline.tables.store import ensure_table, table_uri
from group_coordinator.schemas.tables import REQUESTS, to_requests

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from group_coordinator.pipeline.delta import DataFile
    from group_coordinator.schemas.messages import RequestEvent

SLOTS = 50
# Lanes of a file: one for each LANE_ROWS rows, at most MOST_LANES. A row group costs time in the
# writer, and saves each reader the rows of other coordinators.
LANE_ROWS = 1000
MOST_LANES = 16

TAG = f"group-coordinator.slots-of-{SLOTS}"
# Columns that are written even if they have only nulls: a reader must find one of them.
_KEPT = ("request_id", "group_id", "api")


def in_lanes(rows: pa.Table) -> Layout:
    """Return the layout of a file with these rows of `requests`; group ids may be null."""
    count = rows.num_rows
    names = [
        name for name in rows.column_names if name in _KEPT or rows.column(name).null_count < count
    ]
    rows = rows.select(names)
    if not count:
        return Layout(rows)
    groups = rows.column("group_id").combine_chunks().dictionary_encode(null_encoding="encode")
    ids = groups.dictionary.to_pylist()
    slots = [0 if each is None else partition_for(each, SLOTS) for each in ids]
    lanes = min(MOST_LANES, count // LANE_ROWS)
    if lanes < 2:
        return Layout(rows, {TAG: _text([slots])})
    slot = pa.array(slots, pa.int8()).take(groups.indices)
    found, counts = pc.value_counts(slot).flatten()
    by_slot = sorted(zip(found.to_pylist(), counts.to_pylist(), strict=True))
    cut = list(_cut(by_slot, count, lanes))
    rows = rows.take(pc.array_sort_indices(slot))
    return Layout(rows, {TAG: _text([lane for lane, _ in cut])}, [size for _, size in cut])


def wanted_row_groups(
    tags: Mapping[str, str | None] | None, partition_set: PartitionSet | None
) -> list[bool] | None:
    """Return which row groups of a file may have requests for the partitions, as flags.

    `partition_set` None selects all. Returns None if the file has no valid tag.
    """
    text = (tags or {}).get(TAG)
    if text is None:
        return None
    try:
        masks = [int(each, 16) for each in text.split(",")]
    except ValueError:
        return None
    if partition_set is None:
        return [True] * len(masks)
    mine = _mask(frozenset(partition_set.partitions), partition_set.of)
    return [bool(mask & mine) for mask in masks]


def _cut(
    by_slot: Sequence[tuple[int, int]], count: int, lanes: int
) -> Iterator[tuple[list[int], int]]:
    """Yield the slots of each lane and its number of rows, as equal as whole slots allow."""
    lane: list[int] = []
    size = before = done = 0
    for slot, rows in by_slot:
        lane.append(slot)
        size += rows
        before += rows
        if before * lanes >= count * (done + 1):
            yield lane, size
            done = before * lanes // count
            lane, size = [], 0


def _text(lanes: Sequence[Sequence[int]]) -> str:
    """Return the tag: the slots of each lane as a hexadecimal bit mask."""
    return ",".join(f"{sum(1 << slot for slot in set(lane)):x}" for lane in lanes)


@lru_cache(maxsize=256)
def _mask(partitions: frozenset[int], of: int) -> int:
    """Return a bit mask of the slots that may have groups of these of `of` partitions."""
    common = gcd(SLOTS, of)
    mine = {partition % common for partition in partitions}
    return sum(1 << slot for slot in range(SLOTS) if slot % common in mine)


# --- appends --------------------------------------------------------------------------------------


def open_requests(uri: str) -> Appender:
    """Return an appender to the table `requests`; raises TableNotFoundError.

    Its files are tagged with their offsets partitions.
    """
    return Appender(uri, lay_out=in_lanes)


def write_request_file(uri: str, rows: pa.Table) -> DataFile:
    """Write rows of `requests` as a file that no commit names yet. Raises OSError."""
    return write_rows(open_store(uri), in_lanes(rows), {})


class RequestLog:
    """A writer of request events, one commit for each call; it creates a missing table.

    `RequestProducer` also batches and retries.
    """

    def __init__(self, root: str) -> None:
        ensure_table(root, REQUESTS)
        self._appender = open_requests(table_uri(root, REQUESTS))

    def append(self, requests: Sequence[RequestEvent]) -> None:
        """Append the events in the given order; raises AppendConflict."""
        self._appender.append(to_requests(requests))
