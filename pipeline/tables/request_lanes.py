"""Files of `requests` that tell which offsets partitions they are about, and are sorted by them.

Several coordinators share the table, and each answers the groups of some offsets partitions. A
file's tag says, for each of its row groups, which partitions its requests belong to. So a
coordinator opens no file that has nothing for it, and of a large file it reads its own row groups.

* A writer does not know `offsets.topic.num.partitions`. The tag tells *slots*: a group's slot is
  its offsets partition if there are `SLOTS` of them. Where there are another number, slots and
  partitions are compared modulo their greatest common divisor: a row group is then read by some
  that need not, and never passed over by one that must.
* Rows of more than `LANE_ROWS` are sorted by slot, in a row group for each lane, a range of slots.
  The sort is stable: requests of one group keep their order, which is all that the order of rows
  decides (`pipeline.stream.packed`). Lanes do not depend on who owns what.
* Columns that are null throughout are left out. Delta reads a column that a file lacks as null.
  Each column costs writer and reader, and a file of heartbeats needs 7 of 49 leaf columns.

Files of other writers and of a rewrite have no such tag: all of them is read,
and what belongs to others is dropped by its group id. So is what a tag claims wrongly for a
partition. Rows that a writer's tag conceals are the writer's own requests: the partition's owner
does not see them until it takes over from the tables, and nobody else is concerned.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from group_coordinator.coordinator.group.partition import PartitionSet, partition_for
from group_coordinator.pipeline.delta.data_files import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SLOTS = 50
# The least rows of a lane, and the most lanes of a file. A row group costs its writer, and saves
# each of several readers the rows of the others.
LANE_ROWS = 1000
MOST_LANES = 16

TAG = f"group-coordinator.slots-of-{SLOTS}"
# What a file has even if it is null throughout: who needs no more than ids reads some column.
_KEPT = ("request_id", "group_id", "api")


def in_lanes(rows: pa.Table) -> Layout:
    """Lay the rows of `requests` out, which may have group ids of any values."""
    count = rows.num_rows
    names = [
        name for name in rows.column_names if name in _KEPT or rows.column(name).null_count < count
    ]
    rows = rows.select(names)
    if not count:
        return Layout(rows)
    groups = rows.column("group_id").combine_chunks().dictionary_encode(null_encoding="encode")
    slots = [_slot(group) for group in groups.dictionary.to_pylist()]
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
    """Return which row groups of a file may have requests of some partitions' groups.

    `partition_set` None: of all. None if the file's tags do not tell, or cannot be understood.
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


def _slot(group_id: str | None) -> int:
    return 0 if group_id is None else partition_for(group_id, SLOTS)


def _cut(
    by_slot: Sequence[tuple[int, int]], count: int, lanes: int
) -> Iterator[tuple[list[int], int]]:
    """The slots of each lane, and its rows: as equal as whole slots allow."""
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
    """The slots of each lane as a set of bits, in hexadecimal digits."""
    return ",".join(f"{sum(1 << slot for slot in set(lane)):x}" for lane in lanes)


@lru_cache(maxsize=256)
def _mask(partitions: frozenset[int], of: int) -> int:
    """The slots that may have groups of these partitions, as a set of bits."""
    common = gcd(SLOTS, of)
    mine = {partition % common for partition in partitions}
    return sum(1 << slot for slot in range(SLOTS) if slot % common in mine)
