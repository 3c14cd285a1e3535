"""The end of the offsets topic's log: the log offsets and the segment of its next records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import QueryBuilder

from group_coordinator.pipeline.delta import to_table
from group_coordinator.schemas.tables import OFFSETS_TOPIC, to_arrow

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from group_coordinator.schemas.records import CoordinatorRecord

log = logging.getLogger(__name__)


class OffsetsLog:
    """The next log offset of each offsets partition, and the active segment.

    As in Kafka, a segment is closed when it has `segment_bytes` or is `segment_ms` old. Rows of
    earlier processes count with the size of their files, rows of this process with their size in
    memory.
    """

    def __init__(
        self,
        handle: DeltaTable,
        segment_bytes: int,
        segment_ms: int,
        clock: Callable[[], int],
    ) -> None:
        self._segment_bytes = segment_bytes
        self._segment_ms = segment_ms
        self._clock = clock
        self._next = next_offsets(handle)
        self._segment, self._size, self._since = active_segment(handle)

    def place(
        self, records: Sequence[CoordinatorRecord], upcoming: dict[int, int] | None = None
    ) -> pa.Table:
        """Return the records as rows with log offsets and segment.

        After the rows are written, call `advance` with them. If the records of one append are
        placed in several calls, these share `upcoming`, at first {}, which maps partitions to their
        next log offsets.
        """
        if upcoming is None:
            upcoming = {}
        offsets = []
        for record in records:
            partition = record.partition
            offset = upcoming.get(partition)
            if offset is None:
                offset = self._next.get(partition, 0)
            upcoming[partition] = offset + 1
            offsets.append(offset)
        segment = self._segment + 1 if self._is_full() else self._segment
        columns = {
            "log_offset": pa.array(offsets, pa.int64()),
            "segment": pa.array([segment] * len(records), pa.int64()),
        }
        return to_arrow(OFFSETS_TOPIC, records, columns)

    def advance(self, rows: pa.Table) -> None:
        """Update the next log offsets and the active segment after `rows` were written."""
        highest = rows.group_by("partition").aggregate([("log_offset", "max")])
        for row in highest.to_pylist():
            self._next[row["partition"]] = row["log_offset_max"] + 1
        segment = rows.column("segment")[0].as_py()
        if segment != self._segment:
            log.info("offsets topic: closed segment %d, opened %d", self._segment, segment)
            self._segment, self._size, self._since = segment, 0, None
        self._size += rows.nbytes
        if self._since is None:
            self._since = self._clock()

    def reread(self, handle: DeltaTable, partitions: Collection[int]) -> None:
        """Read the next log offsets of partitions to which other processes have written."""
        self._next.update(next_offsets(handle, partitions))

    def _is_full(self) -> bool:
        if self._since is None:
            return False
        aged = self._clock() - self._since >= self._segment_ms
        return aged or self._size >= self._segment_bytes


def next_offsets(handle: DeltaTable, partitions: Collection[int] | None = None) -> dict[int, int]:
    """Return the next log offset of each offsets partition with records; `partitions` None: of all.

    Reads two columns of the table.
    """
    wanted = ""
    if partitions is not None:
        listed = ", ".join(str(int(partition)) for partition in sorted(partitions))
        wanted = f"WHERE partition IN ({listed}) "
    query = f"SELECT partition, max(log_offset) + 1 AS next FROM log {wanted}GROUP BY partition"
    found = to_table(QueryBuilder().register("log", handle).execute(query))
    return {row["partition"]: row["next"] for row in found.to_pylist()}


def active_segment(handle: DeltaTable) -> tuple[int, int, int | None]:
    """Return the newest segment, the bytes of its files, and the time of its first file (ms).

    They are 0, 0 and None for an empty table. Reads only the table's log.
    """
    files = to_table(handle.get_add_actions(flatten=True))
    if files.num_rows == 0:
        return 0, 0, None
    segments = files.column("partition.segment").to_pylist()
    newest = max(segments)
    mine = files.filter(pa.array([segment == newest for segment in segments]))
    size = sum(mine.column("size_bytes").to_pylist())
    since = min(mine.column("modification_time").cast(pa.int64()).to_pylist())
    return newest, size, since
