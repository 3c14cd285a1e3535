"""Reading of a user's table that is a topic: records by the offset in the index."""

from __future__ import annotations

import logging
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.fs import FileSelector, FileType

from group_coordinator.pipeline.delta import open_delta
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.topics.columns import Columns, as_bytes
from group_coordinator.pipeline.topics.definition import column_types
from group_coordinator.pipeline.topics.indexer import Indexer
from group_coordinator.pipeline.topics.record_batch import CREATE_TIME, HEADERS, Record
from group_coordinator.pipeline.topics.row_groups import OpenFile
from group_coordinator.pipeline.topics.topic_errors import TableReplaced, check_range
from group_coordinator.schemas.rows import TopicIndexEntry
from group_coordinator.schemas.tables import TIMESTAMP

if TYPE_CHECKING:
    from group_coordinator.pipeline.topics.columns import Array
    from group_coordinator.pipeline.topics.index import Index, PartitionIndex, Span
    from group_coordinator.pipeline.topics.json_values import JsonRows
    from group_coordinator.pipeline.topics.row_groups import RowGroup, RowGroupCache
    from group_coordinator.schemas.rows import TopicTable

log = logging.getLogger(__name__)

# The maximum number of row groups that one `read` opens, which bounds its time.
MOST_OPENED = 64
# The first estimate of a record's bytes per byte of its row in Arrow.
_GROWTH = 1.5


class TableReader:
    """A reader of one table that also indexes its new rows; for one thread at a time.

    `index` is the index of all topics.
    """

    def __init__(
        self,
        topic: TopicTable,
        index: Index,
        cache: RowGroupCache[RowGroup],
        json: JsonRows,
    ) -> None:
        self.topic = topic
        self.problem: Exception | None = None
        self._index = index
        self._cache = cache
        self._json = json
        self._made_indexer: Indexer | None = None
        self._growth = _GROWTH
        # Columns of files that the table's schema lacks.
        self._foreign: set[str] = set()

    def step(self, partitions: int) -> bool:
        """Index new rows, about a million at most; return whether there were any.

        New rows are assigned to `partitions` partitions. Raises the errors of `Indexer.step`, and
        TableReplaced if the table does not exist.
        """
        return self._indexer.step(partitions)

    @property
    def mark(self) -> int:
        """A number that changes when there are new records."""
        return self._index.topic(self.topic.topic_id).sequence

    def partition(self, number: int) -> PartitionIndex:
        """Return the index of a partition, as of the last `step`.

        Raises TableReplaced. Raises Failure until the index was read, and if its entries contradict
        each other: the log end may then be lower than one that a client has seen.
        """
        self._check_not_replaced()
        if not self._index.is_read:
            raise Failure("the table topic_index has not been read yet")
        index = self._index.topic(self.topic.topic_id)
        if index.problem is not None:
            raise Failure(index.problem)
        return index.partition(number)

    def read(self, partition: int, offset: int, max_bytes: int, max_records: int) -> list[Record]:
        """Return records from `offset` on: see `TableTopics.read`."""
        index = self.partition(partition)
        self._check_range(partition, index, offset)
        if offset == index.log_end or max_records < 1:
            return []
        try:
            pieces = self._gather(partition, index, offset, max_bytes, max_records)
        except FileNotFoundError:
            self._mark_gone()
            self._check_range(partition, index, offset)
            raise
        return self._records(pieces, offset, max_bytes)

    def read_rows(self, partition: int, offset: int, max_bytes: int, max_records: int) -> pa.Table:
        """Return records from `offset` on as rows: see `TableTopics.read_rows`."""
        records = self.read(partition, offset, max_bytes, max_records)
        times = pa.array([record.timestamp_ms for record in records], pa.timestamp("ms", "UTC"))
        columns = {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "topic": pa.repeat(pa.scalar(self.topic.topic, pa.string()), len(records)),
            "offset": pa.array([record.offset for record in records], pa.int64()),
            "timestamp": times.cast(TIMESTAMP),
            "timestampType": pa.repeat(pa.scalar(CREATE_TIME, pa.int32()), len(records)),
            "headers": pa.nulls(len(records), HEADERS),
        }
        return pa.table(columns)

    def offset_for_time(self, partition: int, timestamp_ms: int) -> tuple[int, int] | None:
        """Return the first offset of this time or later, and its timestamp; None without one."""
        index = self.partition(partition)
        for span in index.spans_since(timestamp_ms):
            try:
                group = self._row_group(span)
            except FileNotFoundError:
                self._mark_gone()
                if span.end > index.log_start:
                    raise
                return self.offset_for_time(partition, timestamp_ms)
            times = group.timestamps[group.places(partition)]
            late = np.flatnonzero(times >= timestamp_ms)
            if len(late):
                return span.base + int(late[0]), int(times[late[0]])
        return None

    def reindex(self, partitions: int) -> None:
        """Restart the topic with the table's present rows: see `TableTopics.reindex`."""
        self._check_not_replaced()
        while not self._index.append(self.topic.topic_id, self._restart(partitions)):
            self._index.poll()
        self._index.poll()

    def _check_not_replaced(self) -> None:
        if isinstance(self.problem, TableReplaced):
            raise TableReplaced(str(self.problem))

    def _restart(self, partitions: int) -> list[TopicIndexEntry]:
        version = self._indexer.log.newest_version()
        index = self._index.topic(self.topic.topic_id)
        return [
            TopicIndexEntry(
                topic=self.topic.topic,
                topic_id=self.topic.topic_id,
                sequence=index.sequence + 1,
                version=version,
                partition=number,
                base_offset=index.partition(number).most_end,
            )
            for number in range(max(partitions, index.most_partitions))
        ]

    @property
    def _indexer(self) -> Indexer:
        """The indexer, created at the first use. Raises TableReplaced without a table."""
        if self._made_indexer is None:
            try:
                handle = open_delta(self.topic.table)
            except TableNotFoundError as error:
                raise TableReplaced(
                    f"the Delta table at {self.topic.table} does not exist any more"
                ) from error
            columns = Columns(self.topic, column_types(handle))
            self._made_indexer = Indexer(self.topic, columns, self._index)
        return self._made_indexer

    def _check_range(self, partition: int, index: PartitionIndex, offset: int) -> None:
        check_range(self.topic.topic, partition, offset, index.log_start, index.log_end)

    # --- rows -------------------------------------------------------------------------------------

    def _gather(
        self,
        partition: int,
        index: PartitionIndex,
        offset: int,
        max_bytes: int,
        max_records: int,
    ) -> list[tuple[pa.Table, Array]]:
        """Return rows of one schema with their timestamps, about as many as the limits allow."""
        pieces: list[tuple[pa.Table, Array]] = []
        size, count = 0.0, 0
        for opened, span in enumerate(index.spans_from(offset)):
            if pieces and (opened >= MOST_OPENED or size >= max_bytes or count >= max_records):
                break
            try:
                group = self._row_group(span)
            except (FileNotFoundError, Failure):
                # Records before a missing or torn file are still returned.
                if pieces:
                    break
                raise
            if pieces and group.rows.schema != pieces[0][0].schema:
                break
            places = group.places(partition)
            if len(places) != span.end - span.base:
                path = self._index.topic(self.topic.topic_id).files[span.file].path
                raise Failure(
                    f"{path} of {self.topic.table} was changed: it has {len(places)} rows for "
                    f"offsets {span.base} to {span.end}"
                )
            row_bytes = max(1.0, self._growth * group.rows.nbytes / max(1, group.rows.num_rows))
            fitting = max(0, int((max_bytes - size) / row_bytes)) + 1
            rest = places[max(0, offset - span.base) :]
            places = rest[: min(fitting, max_records - count)]
            pieces.append((group.rows.take(pa.array(places)), group.timestamps[places]))
            if len(places) < len(rest):
                break
            size += len(places) * row_bytes
            count += len(places)
        return pieces

    def _records(
        self,
        pieces: list[tuple[pa.Table, Array]],
        offset: int,
        max_bytes: int,
    ) -> list[Record]:
        rows = pa.concat_tables([rows for rows, _ in pieces])
        times = np.concatenate([times for _, times in pieces]).tolist()
        key, value = self.topic.key_column, self.topic.value_column
        keys = [None] * len(times) if key is None else as_bytes(rows, key).to_pylist()
        values = self._json.encode(rows) if value is None else as_bytes(rows, value).to_pylist()
        sizes = [len(k or b"") + len(v or b"") for k, v in zip(keys, values, strict=True)]
        if rows.nbytes:
            self._growth = (self._growth + max(0.1, sum(sizes) / rows.nbytes)) / 2
        fitting = max(1, bisect_right(list(accumulate(sizes)), max_bytes))
        return [
            Record(*each)
            for each in zip(range(offset, offset + fitting), times, keys, values, strict=False)
        ]

    def _row_group(self, span: Span) -> RowGroup:
        key = (self.topic.topic_id, span.file, span.row_group)
        group = self._cache.get(key)
        if group is None:
            indexer = self._indexer
            file = self._index.topic(self.topic.topic_id).files[span.file]
            with OpenFile(
                indexer.log.files, file.path, file.partition_values, indexer.columns
            ) as opened:
                self._learn(opened.columns)
                group = opened.read(
                    span.row_group, span.partitions, span.committed_at, indexer.columns.served
                )
            self._cache.put(key, group)
        return group

    def _learn(self, columns: set[str]) -> None:
        """Read the types of columns that were added to the table since they were last read."""
        known = self._indexer.columns.types
        if not columns <= known.keys() | self._foreign:
            known.update(column_types(open_delta(self.topic.table)))
            self._foreign |= columns - known.keys()

    def _mark_gone(self) -> None:
        """Move the log starts past every deleted file; this lists the table's files once.

        A file that the table's log still has is not deleted: it, or its folder, is missing for a
        moment. Raises Failure if the log or the folder cannot be read.
        """
        try:
            live = self._indexer.log.live_paths()
            listed = self._indexer.log.files.get_file_info(FileSelector("", recursive=True))
        except (DeltaError, OSError) as error:
            raise Failure(f"{self.topic.table} cannot be read: {first_line(error)}") from error
        present = {info.path.lstrip("/") for info in listed if info.type == FileType.File}
        index = self._index.topic(self.topic.topic_id)
        missing = {file.path for file in index.files} - present - live
        if not missing:
            return
        log.warning(
            "topic %s: %d files of %s, with their records, were deleted (by VACUUM?)",
            self.topic.topic,
            len(missing),
            self.topic.table,
        )
        index.mark_gone(missing)
