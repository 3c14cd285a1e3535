"""The waiting requests with records in the log, which a bootstrap loads with those records.

A node may be killed between the commit of a batch's records and the commit of its answers. Then
some requests were decided, but their clients have no answer. The next node answers them from their
records (`coordinator.group.recorded`). There are at most about as many as one batch had, and mostly
none. So one scan of the log's request ids finds all of them.

Compaction moves a record to `offsets_history` if its segment is closed and its key has a newer
record. If the commit of a moved record were decided again, it would set back the newer offset. So
the records that compaction moved within the last hour are searched too. A request is decided again
only if its records are in neither table. Compaction does not move records of group metadata, and
moves none if `offsets_history.retention.ms` is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from group_coordinator.coordinator.group.control import recorded_event
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import data_files, modified_within
from group_coordinator.pipeline.node.load_events import as_json, readable
from group_coordinator.pipeline.node.shown_table import ShownTable
from group_coordinator.pipeline.settings import HOUR_MS
from group_coordinator.pipeline.stream.packed import KEY_WIDTH, PACKED_SCHEMA
from group_coordinator.pipeline.tables import open_table
from group_coordinator.schemas.decoding import decode_request
from group_coordinator.schemas.tables import OFFSETS_HISTORY, OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection

    from group_coordinator.pipeline.delta import Engine

# The fields that a request is answered from. `reason` has the former member id of a static member.
_FIELDS = [field for field in OFFSETS_TOPIC.schema if field.name not in ("segment", "request_id")]
_WAITING = "SELECT request_id FROM unanswered WHERE NOT rejectable"
_IDS = pa.schema({"request_id": pa.string()})


class RecordedRequests:
    """The requests in the engine's table `unanswered` that have records in the log.

    `topic` is the root's offsets topic (`load_events.shown_log`). Only records of `partitions`
    count; None counts all. `pipeline.node.waiting_requests` describes `unanswered`. Raises Failure
    with DuckDB's message.
    """

    def __init__(
        self, engine: Engine, root: str, topic: ShownTable, partitions: Collection[int] | None
    ) -> None:
        self._engine = engine
        self.count = 0
        # If no request waits, as is usual, the log need not be read.
        if not engine.run(f"{_WAITING} LIMIT 1"):
            return
        engine.run(
            "CREATE OR REPLACE TEMP TABLE found "
            "(group_id VARCHAR, request_id VARCHAR, log_offset BIGINT, record VARCHAR)"
        )
        self._find(topic, readable(partitions))
        # After the topic, because compaction adds a record here before it removes it there.
        history = open_table(root, OFFSETS_HISTORY)
        moved = modified_within(data_files(history), HOUR_MS, clock_ms())
        if moved:
            shown = ShownTable(engine, history, "superseded", moved)
            self._find(shown, readable(partitions, "superseded"))
        engine.run(
            "CREATE OR REPLACE TEMP TABLE recorded AS SELECT group_id, request_id, "
            "string_agg(record, ',' ORDER BY log_offset) AS records "
            "FROM found GROUP BY group_id, request_id"
        )
        ((self.count,),) = engine.run("SELECT count(*) FROM recorded")

    def _find(self, table: ShownTable, records: str) -> None:
        """Add the records that unanswered requests made to the engine's table `found`."""
        record = as_json(pa.struct(_FIELDS))
        query = (
            "INSERT INTO found "
            f"SELECT group_id, request_id, log_offset, to_json({record})::VARCHAR FROM ({records}) "
            f"WHERE request_id IN ({_WAITING})"
        )
        table.run(lambda: self._engine.run(query))

    def with_records(self, events: pa.Table) -> pa.Table:
        """Return packed requests; those that have records become events with these records."""
        if not self.count:
            return events
        groups, texts = (column.to_pylist() for column in events.columns)
        ids = [decode_request(text[KEY_WIDTH:]).request_id for text in texts]
        page = pa.record_batch([pa.array(ids, pa.string())], schema=_IDS)
        self._engine.store("page", pa.RecordBatchReader.from_batches(_IDS, [page]))
        rows = self._engine.run(
            "SELECT group_id, request_id, records FROM recorded "
            "WHERE request_id IN (SELECT request_id FROM page)"
        )
        records = {(group_id, request_id): found for group_id, request_id, found in rows}
        whose = zip(groups, ids, strict=True)
        brought = [_with(text, records.get(each)) for text, each in zip(texts, whose, strict=True)]
        return pa.table([groups, brought], schema=PACKED_SCHEMA)


def _with(text: str, records: str | None) -> str:
    if records is None:
        return text
    return text[:KEY_WIDTH] + recorded_event(text[KEY_WIDTH:], records)
