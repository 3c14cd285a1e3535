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
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator.group.control import remember_event
from coordinator.group.dedup import IDEMPOTENT, digest_bytes
from pipeline.clock import clock_ms
from pipeline.node.table_scan import TableScan
from pipeline.stream.packed import FIRST_KEY, PACKED_SCHEMA, of_partitions
from pipeline.tables.store import open_table
from schemas.messages import APIS
from schemas.tables import RESPONSES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.group.partition import PartitionSet
    from pipeline.delta.data_files import DataFile
    from pipeline.delta.table_files import TableFiles
    from pipeline.settings import CoordinatorSettings

_COLUMNS = ("request_id", "group_id", "api", "responded_at")
_DECIDING = pa.array([api for api in APIS if api not in IDEMPOTENT], pa.string())
_EVENTS_BYTES = 16 << 20


def answered_lately(root: str, ours: CoordinatorSettings, now_ms: int) -> dict[str, bytearray]:
    """Return the digests of the ids that were answered in the window before `now_ms`, by group."""
    window = ours.request_dedup_window_ms
    scan = TableScan(open_table(root, RESPONSES), modified_within_ms=2 * window, now_ms=now_ms)
    pages = [_deciding(rows) for _, _, rows in scan.pages(_COLUMNS)]
    times = [pc.max(rows.column("responded_at")).as_py() for rows in pages if rows.num_rows]
    end = min(now_ms, max((time for time in times if time is not None), default=0))
    found: dict[str, bytearray] = {}
    if end < now_ms - 2 * window:
        return found
    most = len(digest_bytes("")) * ours.request_dedup_max_ids
    for rows in pages:
        lately = rows.filter(pc.greater(rows.column("responded_at"), end - window))
        ids, groups = (lately.column(name).to_pylist() for name in ("request_id", "group_id"))
        for request_id, group_id in zip(ids, groups, strict=True):
            digests = found.setdefault(group_id, bytearray())
            digests += digest_bytes(request_id)
            del digests[:-most]
    return found


def _deciding(rows: pa.Table) -> pa.Table:
    """The answers of the APIs that count, with their times in ms."""
    at = rows.column("responded_at").cast(pa.timestamp("ms", tz="UTC"), safe=False)
    rows = rows.set_column(
        rows.column_names.index("responded_at"), "responded_at", at.cast("int64")
    )
    return rows.filter(pc.is_in(rows.column("api"), _DECIDING))


def write_remembered(
    root: str,
    target: TableFiles,
    partition_set: PartitionSet | None,
    ours: CoordinatorSettings,
) -> list[DataFile]:
    """Write an event for each group of some partitions, as a file that is not yet the table's."""
    path, local = target.new_file()
    records = 0
    with pq.ParquetWriter(local, PACKED_SCHEMA, compression="zstd") as writer:
        for events in _events(answered_lately(root, ours, clock_ms())):
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
