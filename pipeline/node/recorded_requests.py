"""The waiting requests whose records stand, which a bootstrap brings with those records.

A node that is killed between the commit of a batch's records and that of its answers leaves
requests that were decided and that nobody was told of. The next node answers them by their records
(`coordinator.group.recorded`). There are as many as one batch had, or a few: so all of them are
found by one look at the request ids of the log, and mostly there are none.

Compaction may have removed a record by then, if its segment was closed and its key has a newer one.
A request without any other record is decided again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from group_coordinator.coordinator.group.control import recorded_event
from group_coordinator.pipeline.node.load_events import as_json, readable
from group_coordinator.pipeline.stream.packed import KEY_WIDTH, PACKED_SCHEMA
from group_coordinator.schemas.decoding import decode_request
from group_coordinator.schemas.tables import OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection

    from group_coordinator.pipeline.delta.engine import Engine
    from group_coordinator.pipeline.node.shown_table import ShownTable

# What a request is answered by; the reason has the member id that a static member had before.
_FIELDS = [field for field in OFFSETS_TOPIC.schema if field.name not in ("segment", "request_id")]
_IDS = pa.schema({"request_id": pa.string()})


class RecordedRequests:
    """The requests among those that the engine's table `unanswered` has which have records.

    `topic` is the offsets topic as the engine shows it (`shown_log`), of which the records of
    `partitions` count, None for all. See `pipeline.node.waiting_requests` for `unanswered`. Raises
    Failure with what DuckDB says.
    """

    def __init__(
        self, engine: Engine, topic: ShownTable, partitions: Collection[int] | None
    ) -> None:
        self._engine = engine
        record = as_json(pa.struct(_FIELDS))
        found = (
            f"SELECT group_id, request_id, log_offset, {record} AS record "
            f"FROM ({readable(partitions)}) "
            "WHERE request_id IN (SELECT request_id FROM unanswered WHERE NOT rejectable)"
        )
        query = (
            "CREATE OR REPLACE TEMP TABLE recorded AS SELECT group_id, request_id, "
            "string_agg(to_json(record)::VARCHAR, ',' ORDER BY log_offset) AS records "
            f"FROM ({found}) GROUP BY group_id, request_id"
        )
        topic.run(lambda: engine.run(query))
        ((self.count,),) = engine.run("SELECT count(*) FROM recorded")

    def with_records(self, events: pa.Table) -> pa.Table:
        """Return packed requests, those that have records as events that bring them too."""
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
