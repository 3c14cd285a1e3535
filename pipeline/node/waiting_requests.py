"""The requests that a take-over must load: those that were neither answered nor rejected.

DuckDB finds them by their ids alone, within its memory limit. Only those are read whole, and packed
in the stream's format.

If a node was killed between the commit of a batch's records and the commit of its answers, some
waiting requests have records in the log. They are loaded with these records (`RecordedRequests`),
and the next node answers from them (`coordinator.group.recorded`).

Compaction moves a record of a closed segment to `offsets_history` if its key has a newer one.
Deciding the commit of a moved record again would set back the newer offset, so the records moved
within the last hour are searched too. Compaction does not move group metadata, and moves nothing if
`offsets_history.retention.ms` is 0.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from group_coordinator.coordinator.group.control import recorded_event
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import AT_ONCE, data_files, modified_within
from group_coordinator.pipeline.node.load_events import as_json, readable
from group_coordinator.pipeline.node.table_scan import DuckDbView, TableScan
from group_coordinator.pipeline.settings import HOUR_MS, CoordinatorSettings
from group_coordinator.pipeline.stream.contract_types import in_contract_types, texts
from group_coordinator.pipeline.stream.packed_events import KEY_WIDTH, PACKED_SCHEMA, pack_rows
from group_coordinator.pipeline.stream.request_pages import LONGEST_ID, RefusedRequests, bounded
from group_coordinator.pipeline.tables import open_table
from group_coordinator.schemas.decoding import decode_request
from group_coordinator.schemas.tables import (
    OFFSETS_HISTORY,
    OFFSETS_TOPIC,
    REJECTED_REQUESTS,
    REQUESTS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from deltalake import DeltaTable

    from group_coordinator.coordinator.group.partition import PartitionSet
    from group_coordinator.pipeline.delta import DataFile, Engine, TableFiles

    NewestVersion = Callable[[], DeltaTable]
    from collections.abc import Collection

# The default of `max.request.size`, bytes.
MOST = CoordinatorSettings().max_request_size
# The reader of the bootstrap holds one of its row groups in memory.
_ROW_GROUP_BYTES = 16 << 20
_DIGEST_BYTES = 16
_PLACE = {"file": pa.int32(), "row": pa.int64()}
_ASKED = pa.schema({**_PLACE, "request_id": pa.string(), "rejectable": pa.bool_()})
_BROKEN = pa.schema({**_PLACE, "digest": pa.binary()})
_REJECTED = pa.schema({"digest": pa.binary()})
# The fields needed for an answer. `reason` has the former member id of a static member.
_FIELDS = [field for field in OFFSETS_TOPIC.schema if field.name not in ("segment", "request_id")]
_WAITING = "SELECT request_id FROM unanswered WHERE NOT rejectable"
_IDS = pa.schema({"request_id": pa.string()})


class WaitingRequests:
    """The requests that were neither answered nor rejected, as of the versions read so far.

    A request without a request_id or a group_id cannot be answered: it counts as rejected if its
    text is in `rejected_requests`. The same table is searched for a request with an id longer than
    `LONGEST_ID`: a coordinator rejects it if it has more than `most` bytes (`max.request.size`),
    and otherwise answers it. `at_once` limits parallel requests to an object store. Raises Failure
    with DuckDB's message.
    """

    def __init__(self, engine: Engine, root: str, most: int = MOST, at_once: int = AT_ONCE) -> None:
        self._engine = engine
        self._at_once = at_once
        self._root = root
        self._most = most
        self._requests: TableScan | None = None

    def read_on(self, requests: NewestVersion, read_answers: Callable[[], None]) -> int:
        """Read the rows written since the last call; return the version of `requests` read.

        The first call, and a call after a rewrite of the table, reads all rows. `read_answers` must
        add all present answers to the engine's table `answered`
        (`pipeline.node.answered_requests`).
        """
        asked = requests()
        since = 0 if self._requests is None else self._requests.file_count
        if self._requests is None or not self._requests.grow(asked):
            since = 0
            self._requests = TableScan(asked, RefusedRequests(), at_once=self._at_once)
            self._engine.run(
                "CREATE OR REPLACE TEMP TABLE unanswered "
                "(file INTEGER, row BIGINT, request_id VARCHAR, rejectable BOOLEAN)"
            )
        self._store("asked", _ASKED, self._asked(self._requests, since))
        self._engine.run("INSERT INTO unanswered FROM asked")
        # After the requests, so that all of them can have their answers.
        read_answers()
        # In two steps, because there are many answers and mostly few such requests.
        self._engine.run(
            "CREATE OR REPLACE TEMP TABLE done AS SELECT request_id FROM answered "
            "WHERE request_id IN (SELECT request_id FROM unanswered)"
        )
        self._engine.run("DELETE FROM unanswered WHERE request_id IN (SELECT request_id FROM done)")
        return asked.version()

    def packed(self, partition_set: PartitionSet | None) -> Iterator[pa.Table]:
        """Yield the packed waiting requests of these partitions (None: all), page by page."""
        self._find()
        pages = (
            page
            for file, rows in self._places("waiting").items()
            for _, whole in self._scan.take(file, rows, REQUESTS.schema.names)
            for page in bounded(whole, self._most)
        )
        for rows in _joined(pages):
            yield pack_rows(rows, partition_set=partition_set)

    @property
    def _scan(self) -> TableScan:
        assert self._requests is not None, "nothing was read yet"
        return self._requests

    # --- search -----------------------------------------------------------------------------------

    def _store(self, table: str, schema: pa.Schema, pages: Iterable[pa.Table]) -> None:
        batches = (batch for page in pages for batch in page.to_batches())
        self._engine.store(table, pa.RecordBatchReader.from_batches(schema, batches))

    def _find(self) -> None:
        self._engine.run(
            "CREATE OR REPLACE TEMP TABLE waiting AS "
            "SELECT file, row FROM unanswered WHERE NOT rejectable"
        )
        if self._engine.run("SELECT 1 FROM unanswered WHERE rejectable LIMIT 1"):
            self._add_broken(TableScan(open_table(self._root, REJECTED_REQUESTS)))

    def _asked(self, requests: TableScan, since: int) -> Iterator[pa.Table]:
        for file, first, rows in requests.pages(["request_id", "group_id"], since):
            columns = in_contract_types(rows)
            request_id = texts(columns, "request_id", rows.num_rows)
            group_id = texts(columns, "group_id", rows.num_rows)
            nobody = pc.or_(pc.is_null(request_id), pc.is_null(group_id))
            rejectable = pc.or_(nobody, pc.or_(_is_long(request_id), _is_long(group_id)))
            answerable = pc.if_else(nobody, None, request_id)
            numbers = pa.array(range(first, first + rows.num_rows), pa.int64())
            asked = [_repeated(file, numbers), numbers, answerable, rejectable]
            yield pa.table(asked, schema=_ASKED)

    def _add_broken(self, rejected: TableScan) -> None:
        """Add the requests with a missing or too long id, unless they were rejected already."""
        self._engine.run(
            "CREATE OR REPLACE TEMP TABLE rejectable AS FROM unanswered WHERE rejectable"
        )
        self._store("broken", _BROKEN, self._broken(self._places("rejectable")))
        events = (rows.column("event").drop_null() for _, _, rows in rejected.pages(["event"]))
        self._store("rejected", _REJECTED, (pa.table([_digests(e)], _REJECTED) for e in events))
        self._engine.run(
            "INSERT INTO waiting SELECT file, row FROM broken WHERE NOT EXISTS "
            "(SELECT 1 FROM rejected WHERE rejected.digest = broken.digest)"
        )

    def _broken(self, places: dict[int, pa.Array]) -> Iterator[pa.Table]:
        for file, rows in places.items():
            for found, page in self._scan.take(file, rows, REQUESTS.schema.names):
                packed = [pack_rows(each).column("event") for each in bounded(page, self._most)]
                events = pa.chunked_array([chunk for each in packed for chunk in each.chunks])
                said = pc.utf8_slice_codeunits(events, KEY_WIDTH)
                yield pa.table([_repeated(file, found), found, _digests(said)], schema=_BROKEN)

    def _places(self, table: str) -> dict[int, pa.Array]:
        found = self._engine.run(f"SELECT file, list(row ORDER BY row) FROM {table} GROUP BY file")
        return {file: pa.array(rows, pa.int64()) for file, rows in sorted(found)}


def write_waiting_requests(
    waiting: WaitingRequests,
    target: TableFiles,
    partition_set: PartitionSet | None,
    recorded: RecordedRequests,
) -> list[DataFile]:
    """Write the waiting requests of these partitions to a file that is not yet part of the table.

    `partition_set` None is all partitions. An event without a group belongs to partition 0. A
    request in `recorded` is written with its records.
    """
    path, local = target.new_file()
    records = 0
    with pq.ParquetWriter(local, PACKED_SCHEMA, compression="zstd") as writer:
        for rows in _joined(waiting.packed(partition_set)):
            records += rows.num_rows
            if rows.num_rows:
                writer.write_table(recorded.with_records(rows))
    file = target.written(path, records)
    return [] if file is None else [file]


def _joined(pages: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join pages of the same columns up to a row group's size, to pack them in few calls."""
    gathered: list[pa.Table] = []
    size = 0
    for page in pages:
        if gathered and (size >= _ROW_GROUP_BYTES or page.schema != gathered[0].schema):
            yield pa.concat_tables(gathered)
            gathered, size = [], 0
        gathered.append(page)
        size += page.nbytes
    if gathered:
        yield pa.concat_tables(gathered)


def _is_long(ids: pa.Array) -> pa.Array:
    return pc.greater(pc.coalesce(pc.binary_length(ids), 0), LONGEST_ID)


def _repeated(file: int, numbers: pa.Array) -> pa.Array:
    return pa.repeat(pa.scalar(file, pa.int32()), len(numbers))


def _digests(events: pa.ChunkedArray) -> pa.Array:
    digest = functools.partial(hashlib.blake2b, digest_size=_DIGEST_BYTES)
    return pa.array((digest(text.encode()).digest() for text in events.to_pylist()), pa.binary())


class RecordedRequests:
    """The requests in the engine's table `unanswered` that have records in the log.

    `topic` is the offsets topic (`load_events.offsets_topic_view`). Only records of `partitions`
    count; None counts all. Raises Failure with DuckDB's message.
    """

    def __init__(
        self, engine: Engine, root: str, topic: DuckDbView, partitions: Collection[int] | None
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
            shown = DuckDbView(engine, history, "superseded", moved)
            self._find(shown, readable(partitions, "superseded"))
        engine.run(
            "CREATE OR REPLACE TEMP TABLE recorded AS SELECT group_id, request_id, "
            "string_agg(record, ',' ORDER BY log_offset) AS records "
            "FROM found GROUP BY group_id, request_id"
        )
        ((self.count,),) = engine.run("SELECT count(*) FROM recorded")

    def _find(self, table: DuckDbView, records: str) -> None:
        record = as_json(pa.struct(_FIELDS))
        query = (
            "INSERT INTO found "
            f"SELECT group_id, request_id, log_offset, to_json({record})::VARCHAR FROM ({records}) "
            f"WHERE request_id IN ({_WAITING})"
        )
        table.run(lambda: self._engine.run(query))

    def with_records(self, events: pa.Table) -> pa.Table:
        """Return packed requests; those with records become events with these records."""
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
