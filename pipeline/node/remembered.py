"""The requests that were answered lately, for the groups that a bootstrap loads.

A producer that retries an append whose commit had gone through writes its requests twice, and the
second time may be after the group was taken over. What a coordinator remembers is in its streaming
checkpoint, which does not move with a partition and may be lost; but `responses` says what was
answered. So a bootstrap has, for each group, an event with the ids that were answered within
`request.dedup.window.ms`, and the group remembers them for one more window.

Only those APIs count of which a second decision could undo what was decided in between
(`coordinator.group.dedup`). Only the files of `responses` are read that were written in the window,
and a group is brought its newest `request.dedup.max.ids`.

Answers are dated by the clocks of the coordinators that gave them. The window ends at the newest
answer, if that is not later than this coordinator's clock, so that a clock that is behind by less
than a window hides nothing. If nothing was answered for two windows, nothing is brought: an id that
comes again after that is a new request's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from group_coordinator.coordinator.group.control import remember_event
from group_coordinator.coordinator.group.dedup import digest_bytes
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.stream.packed import FIRST_KEY, PACKED_SCHEMA, of_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from group_coordinator.coordinator.group.partition import PartitionSet
    from group_coordinator.pipeline.delta.data_files import DataFile
    from group_coordinator.pipeline.delta.engine import Engine
    from group_coordinator.pipeline.delta.table_files import TableFiles
    from group_coordinator.pipeline.settings import CoordinatorSettings

_EVENTS_BYTES = 16 << 20


class AnsweredLately:
    """The ids that were answered within the window, by the engine's table `lately`.

    See `pipeline.node.answers`. Raises Failure with what DuckDB says.
    """

    def __init__(self, engine: Engine, ours: CoordinatorSettings) -> None:
        self._engine = engine
        self._window_ms = ours.request_dedup_window_ms
        self._most = len(digest_bytes("")) * ours.request_dedup_max_ids

    def digests(self, now_ms: int) -> dict[str, bytearray]:
        """Return the digests of the ids that were answered in the window, by group."""
        answers = self._engine.run(
            "SELECT DISTINCT id, group_id, at_ms FROM lately ORDER BY at_ms, id"
        )
        end = min(now_ms, max((at for _, _, at in answers), default=0))
        found: dict[str, bytearray] = {}
        if end < now_ms - 2 * self._window_ms:
            return found
        for request_id, group_id, at in answers:
            if at > end - self._window_ms:
                digests = found.setdefault(group_id, bytearray())
                digests += digest_bytes(request_id)
                del digests[: -self._most]
        return found


def write_remembered(
    lately: AnsweredLately, target: TableFiles, partition_set: PartitionSet | None
) -> list[DataFile]:
    """Write an event for each group of some partitions, as a file that is not yet the table's."""
    path, local = target.new_file()
    records = 0
    with pq.ParquetWriter(local, PACKED_SCHEMA, compression="zstd") as writer:
        for events in _events(lately.digests(clock_ms())):
            mine = of_partitions(events, partition_set)
            records += mine.num_rows
            if mine.num_rows:
                writer.write_table(mine)
    file = target.written(path, records)
    return [] if file is None else [file]


def _events(found: dict[str, bytearray]) -> Iterator[pa.Table]:
    """The events, joined up to about a row group's bytes."""
    rows: list[dict[str, str]] = []
    size = 0
    for group_id in sorted(found):
        event = FIRST_KEY + remember_event(bytes(found[group_id]))
        rows.append({"group_id": group_id, "event": event})
        size += len(event)
        if size >= _EVENTS_BYTES:
            yield pa.Table.from_pylist(rows, PACKED_SCHEMA)
            rows, size = [], 0
    if rows:
        yield pa.Table.from_pylist(rows, PACKED_SCHEMA)
