"""The answered requests, read from `responses` for a take-over; each data file is read once.

They show which requests still wait (`pipeline.node.waiting_requests`), and which ids the groups
must remember.

A producer that retries a commit, although it succeeded, writes its requests twice, perhaps with a
take-over in between. A coordinator's deduplication window is in its streaming checkpoint, which
does not move with a partition. So the bootstrap has an event for each group with the ids answered
within `request.dedup.window.ms`, at most the newest `request.dedup.max.ids`. The group remembers
them for one more window. Only APIs that are not safe to repeat count (`coordinator.group.dedup`),
and only recent files are read.

Answers have the clock times of the coordinators that gave them. A group's window ends at its newest
answer, or at this coordinator's clock if that is earlier, so clocks may differ by MOST_BEHIND_MS. A
group without an answer for two windows plus MOST_BEHIND_MS gets no ids.

The event also has the newest answer of any of the groups. If this coordinator's clock is earlier,
the groups are decided by that time (`coordinator.group.log_time`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from group_coordinator.coordinator.group.control import remember_event
from group_coordinator.coordinator.group.dedup import digest_bytes
from group_coordinator.coordinator.group.log_time import MOST_BEHIND_MS
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import (
    AT_ONCE,
    data_files,
    local_folder,
    modified_within,
    quoted,
)
from group_coordinator.pipeline.node.table_scan import DuckDbView, TableScan
from group_coordinator.pipeline.stream.packed_events import FIRST_KEY, PACKED_SCHEMA, of_partitions
from group_coordinator.schemas.apis import DECIDED
from group_coordinator.schemas.tables import RESPONSES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltalake import DeltaTable

    from group_coordinator.coordinator.group.partition import PartitionSet
    from group_coordinator.pipeline.delta import DataFile, Engine, TableFiles
    from group_coordinator.pipeline.settings import CoordinatorSettings

log = logging.getLogger(__name__)
_EVENTS_BYTES = 16 << 20
# A clock that lags by less is not logged, ms.
_TOLD_MS = 1_000


_EARLY = pa.schema([RESPONSES.schema.field("request_id")])
_LATE = pa.schema(
    [RESPONSES.schema.field(name) for name in ("request_id", "group_id", "api", "responded_at")]
)
# The APIs that are not safe to repeat. Deciding another request twice undoes nothing.
_DECIDING = ", ".join(quoted(api.name) for api in DECIDED.values() if not api.is_repeatable)
_TO_ANSWERED = "INSERT INTO answered SELECT request_id FROM fetched"
_TO_LATELY = (
    "INSERT INTO lately SELECT request_id, group_id, epoch_ms(responded_at) FROM fetched "
    f"WHERE api IN ({_DECIDING}) AND request_id IS NOT NULL AND group_id IS NOT NULL "
    "AND responded_at IS NOT NULL"
)
_TO_NEWEST = (
    "INSERT INTO newest SELECT group_id, epoch_ms(max(responded_at)) FROM fetched "
    "WHERE group_id IS NOT NULL AND responded_at IS NOT NULL GROUP BY group_id"
)


class Answers:
    """The answers read so far, in three temporary tables of the DuckDB engine.

    * `answered` (`request_id`): the requests with any answer.
    * `lately` (`id`, `group_id`, `at_ms`): the answered requests in recent files, of APIs that are
      not safe to repeat.
    * `newest` (`group_id`, `at_ms`): a group's last answer in recent files, one row for each
      `read_on`.

    A file is recent if it was written at most two windows of `window_ms` plus MOST_BEHIND_MS before
    it is read, or before the newest file of `responses` if that is earlier. `at_once` limits
    parallel requests to an object store.
    """

    def __init__(self, engine: Engine, window_ms: int, at_once: int = AT_ONCE) -> None:
        self._engine = engine
        self._at_once = at_once
        self._lately_ms = 2 * window_ms + MOST_BEHIND_MS
        # The paths of the files that were read.
        self._read: set[str] = set()
        engine.run("CREATE TEMP TABLE answered (request_id VARCHAR)")
        engine.run("CREATE TEMP TABLE lately (id VARCHAR, group_id VARCHAR, at_ms BIGINT)")
        engine.run("CREATE TEMP TABLE newest (group_id VARCHAR, at_ms BIGINT)")

    def read_on(self, responses: DeltaTable, now_ms: int) -> None:
        """Read the files that were not read yet. Raises Failure with DuckDB's message.

        The answers of a file that was rewritten since are read again.
        """
        files = data_files(responses)
        late = {file.path for file in modified_within(files, self._lately_ms, now_ms)}
        unread = [file for file in files if file.path not in self._read]
        earlier = [file for file in unread if file.path not in late]
        later = [file for file in unread if file.path in late]
        if earlier:
            self._fetch(responses, earlier, _EARLY)
            self._engine.run(_TO_ANSWERED)
        if later:
            self._fetch(responses, later, _LATE)
            self._engine.run(_TO_ANSWERED)
            self._engine.run(_TO_LATELY)
            self._engine.run(_TO_NEWEST)
        if unread:
            self._engine.run("DROP TABLE fetched")
        self._read.update(file.path for file in unread)

    def _fetch(self, responses: DeltaTable, files: Sequence[DataFile], schema: pa.Schema) -> None:
        if local_folder(responses.table_uri) is None:
            # DuckDB would need local copies of whole files; pyarrow fetches only these columns.
            scan = TableScan(responses, only=files, at_once=self._at_once)
            pages = scan.pages(schema.names)
            batches = (each for _, _, rows in pages for each in rows.cast(schema).to_batches())
            self._engine.store("fetched", pa.RecordBatchReader.from_batches(schema, batches))
        else:
            shown = DuckDbView(self._engine, responses, "answers", files)
            names = ", ".join(schema.names)
            sql = f"CREATE OR REPLACE TEMP TABLE fetched AS SELECT {names} FROM answers"
            shown.run(lambda: self._engine.run(sql))


class RecentAnswers:
    """The request ids answered within the window, from the engine's table `lately` (see `Answers`).

    Raises Failure with DuckDB's message.
    """

    def __init__(self, engine: Engine, ours: CoordinatorSettings) -> None:
        self._engine = engine
        self._window_ms = ours.request_dedup_window_ms
        self._most = len(digest_bytes("")) * ours.request_dedup_max_ids

    def digests(self, now_ms: int) -> dict[str, bytearray]:
        """Return the digests of the ids that were answered within the window, by group."""
        answers = self._engine.run(
            "SELECT DISTINCT id, group_id, at_ms, max(at_ms) OVER (PARTITION BY group_id) "
            "FROM lately ORDER BY at_ms, id"
        )
        oldest = now_ms - 2 * self._window_ms - MOST_BEHIND_MS
        found: dict[str, bytearray] = {}
        for request_id, group_id, at, newest in answers:
            end = min(now_ms, newest)
            if end >= oldest and at > end - self._window_ms:
                digests = found.setdefault(group_id, bytearray())
                digests += digest_bytes(request_id)
                del digests[: -self._most]
        return found

    def newest_ms(self, partition_set: PartitionSet | None, now_ms: int) -> int | None:
        """Return the time (ms) of the last answer to a group of these partitions, None without one.

        `partition_set` None is all partitions. Logs a warning if this machine's clock lags. An
        answer more than MOST_BEHIND_MS after `now_ms` is logged and ignored.
        """
        times = [
            at
            for group_id, at in self._engine.run(
                "SELECT group_id, max(at_ms) FROM newest GROUP BY group_id"
            )
            if partition_set is None
            or partition_for(group_id, partition_set.of) in partition_set.partitions
        ]
        behind_ms = max(times, default=now_ms) - now_ms
        if behind_ms > MOST_BEHIND_MS:
            log.warning(
                "an answer is %.0f s ahead of this machine's clock, more than clocks may differ: "
                "synchronize the clocks, because a repeated request may be decided twice",
                behind_ms / 1000,
            )
        elif behind_ms > _TOLD_MS:
            log.warning(
                "this machine's clock is %.1f s behind the log of the partitions that it takes "
                "over: their groups are decided by the log's time until the clock has caught up",
                behind_ms / 1000,
            )
        return max((at for at in times if at <= now_ms + MOST_BEHIND_MS), default=None)


def write_remembered_requests(
    lately: RecentAnswers,
    target: TableFiles,
    partition_set: PartitionSet | None,
    log_ms: int | None = None,
) -> list[DataFile]:
    """Write the events with the remembered ids to a file that is not yet part of the table.

    `log_ms` is the result of `RecentAnswers.newest_ms`.
    """
    path, local = target.new_file()
    records = 0
    with pq.ParquetWriter(local, PACKED_SCHEMA, compression="zstd") as writer:
        for events in _events(lately.digests(clock_ms()), log_ms):
            mine = of_partitions(events, partition_set)
            records += mine.num_rows
            if mine.num_rows:
                writer.write_table(mine)
    file = target.written(path, records)
    return [] if file is None else [file]


def _events(found: dict[str, bytearray], log_ms: int | None) -> Iterator[pa.Table]:
    """Yield the events, in tables of about the size of a row group."""
    rows: list[dict[str, str]] = []
    size = 0
    for group_id in sorted(found):
        event = FIRST_KEY + remember_event(bytes(found[group_id]), log_ms)
        rows.append({"group_id": group_id, "event": event})
        size += len(event)
        if size >= _EVENTS_BYTES:
            yield pa.Table.from_pylist(rows, PACKED_SCHEMA)
            rows, size = [], 0
    if rows:
        yield pa.Table.from_pylist(rows, PACKED_SCHEMA)
