"""Reading of a topic's own table: records by the offset in each row."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from group_coordinator.pipeline.delta import read_whole
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.topics.record_batch import Record
from group_coordinator.pipeline.topics.row_groups import plain_types
from group_coordinator.pipeline.topics.segments import PartitionSegments, Segments
from group_coordinator.pipeline.topics.topic_errors import TableReplaced, check_range
from group_coordinator.schemas.tables import TOPIC_RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from group_coordinator.pipeline.topics.columns import Array
    from group_coordinator.pipeline.topics.json_values import JsonRows
    from group_coordinator.pipeline.topics.row_groups import RowGroupCache
    from group_coordinator.pipeline.topics.segments import Segment
    from group_coordinator.schemas.rows import TopicTable

# The maximum number of row groups or files that one `read` reads, which bounds its time.
MOST_OPENED = 64
_COLUMNS = [name for name in TOPIC_RECORDS.schema.names if name != "partition"]
_SCHEMA = pa.schema([TOPIC_RECORDS.schema.field(name) for name in _COLUMNS])
_MILLIS = pa.timestamp("ms", "UTC")
# The maximum number of files with cached offsets of their row groups.
_FOOTERS_KEPT = 10_000
# The smallest size of the two lengths in a header, bytes.
_HEADER_BYTES = 2


class LogRows(Struct, frozen=True):
    """Rows of one partition, by ascending offset."""

    rows: pa.Table
    offsets: Array

    @property
    def nbytes(self) -> int:
        """The size of the rows in memory, bytes."""
        return int(self.rows.nbytes + self.offsets.nbytes)


class LogReader:
    """A reader of one topic; for one thread at a time.

    With a `json` encoder, a record's value is its whole row as JSON.
    """

    def __init__(
        self, topic: TopicTable, cache: RowGroupCache[LogRows], json: JsonRows | None
    ) -> None:
        self.topic = topic
        self.problem: Exception | None = None
        self._segments = Segments(topic.table, topic.table_id)
        self._cache = cache
        self._json = json
        self._ends: dict[str, list[int]] = {}

    def poll(self) -> bool:
        """Read new commits; return whether there were any."""
        return self._segments.poll()

    @property
    def mark(self) -> int:
        """A number that changes with each commit that was read: the table's version."""
        return self._segments.live.version

    def partition(self, number: int) -> PartitionSegments:
        """Return the segments of a partition, as of the last `poll`.

        Raises TableReplaced. Raises Failure until the table was read to its end: log start and end
        are not known before.
        """
        if isinstance(self.problem, TableReplaced):
            raise TableReplaced(str(self.problem))
        if not self._segments.is_whole:
            raise Failure(f"the table of topic {self.topic.topic!r} has not been read yet")
        return self._segments.partition(number)

    def read(self, partition: int, offset: int, max_bytes: int, max_records: int) -> list[Record]:
        """Return records from `offset` on: see `TableTopics.read`."""
        found: list[Record] = []
        size = 0
        self.check_range(partition, offset)
        for _ in range(MOST_OPENED):
            # KIP-74: only the first record may exceed the limit.
            least = 0 if found else 1
            some = self._read(partition, offset, max_bytes - size, max_records - len(found), least)
            if not some:
                break
            found += some
            size += sum(map(_size, some))
            offset = some[-1].offset + 1
            if size >= max_bytes or len(found) >= max_records:
                break
        return found

    def read_rows(self, partition: int, offset: int, max_bytes: int, max_records: int) -> pa.Table:
        """Return rows of one row group from `offset` on: see `TableTopics.read_rows`."""
        self.check_range(partition, offset)
        rows = self._slice(partition, offset, max_bytes, max_records, 1)
        if rows is None:
            return _SCHEMA.empty_table()
        if self._json is not None:
            values = pa.array(self._values(rows), pa.binary())
            rows = rows.set_column(_COLUMNS.index("value"), "value", values)
        return rows

    def check_range(self, partition: int, offset: int) -> None:
        """Raise OffsetOutOfRange unless the offset is between log start and log end."""
        log = self.partition(partition)
        check_range(self.topic.topic, partition, offset, log.log_start, log.log_end)

    def offset_for_time(self, partition: int, timestamp_ms: int) -> tuple[int, int] | None:
        """Return the first offset of this time or later, and its timestamp; None without one."""
        log = self.partition(partition)
        at = log.log_start
        for segment in log.since(timestamp_ms):
            at = max(at, segment.base)
            while at < segment.end:
                rows = self._rows(partition, at)
                if rows is None:
                    return None
                times = _millis(rows.rows)
                late = np.flatnonzero((times >= timestamp_ms) & (rows.offsets >= at))
                if len(late):
                    return int(rows.offsets[late[0]]), int(times[late[0]])
                at = int(rows.offsets[-1]) + 1
        return None

    # --- rows -------------------------------------------------------------------------------------

    def _read(self, partition: int, offset: int, room: int, most: int, least: int) -> list[Record]:
        rows = self._slice(partition, offset, room, most, least)
        return [] if rows is None else self._records(rows)

    def _slice(
        self, partition: int, offset: int, room: int, most: int, least: int
    ) -> pa.Table | None:
        """Return rows of one row group: `least` of them even if they exceed `room` bytes.

        None at the log's end.
        """
        found = self._rows(partition, offset) if most > 0 else None
        if found is None:
            return None
        first = int(np.searchsorted(found.offsets, offset))
        rows = found.rows.slice(first, most)
        total = np.cumsum(_lengths(rows, "key") + _lengths(rows, "value") + _header_sizes(rows))
        fitting = max(least, int(np.searchsorted(total, room, side="right")))
        return rows.slice(0, fitting)

    def _records(self, rows: pa.Table) -> list[Record]:
        offsets = rows.column("offset").to_pylist()
        times = _millis(rows).tolist()
        keys = rows.column("key").to_pylist()
        values = self._values(rows)
        headers = rows.column("headers")
        types = rows.column("timestampType").to_pylist()
        if headers.null_count == len(headers):
            return [
                Record(offset, time, key, value, (), kind)
                for offset, time, key, value, kind in zip(
                    offsets, times, keys, values, types, strict=True
                )
            ]
        pairs = [
            () if each is None else tuple((one["key"], one["value"]) for one in each)
            for each in headers.to_pylist()
        ]
        return [
            Record(*each) for each in zip(offsets, times, keys, values, pairs, types, strict=True)
        ]

    def _values(self, rows: pa.Table) -> list[bytes | None]:
        if self._json is None:
            values: list[bytes | None] = rows.column("value").to_pylist()
            return values
        return [*self._json.encode(plain_types(rows, {}))]

    def _rows(self, partition: int, offset: int) -> LogRows | None:
        """Return the row group with the offset, or the next one; None at the log's end.

        Raises FileNotFoundError if a file is missing.
        """
        while True:
            run = self._segments.partition(partition).run_from(offset)
            if not run:
                return None
            try:
                rows = self._of_run(run, offset)
            except FileNotFoundError:
                # Maintenance has rewritten and deleted the file since: the log names the new one.
                if not self._segments.poll():
                    raise
                self.check_range(partition, offset)
                continue
            if rows is not None:
                return rows
            offset = max(segment.end for segment in run)

    def _of_run(self, run: list[Segment], offset: int) -> LogRows | None:
        """Return the rows of overlapping files, or of the row group with the offset.

        None if these files have no row with this offset or a later one.
        """
        paths = tuple(segment.file.path for segment in run)
        ends = self._ends_of_groups(paths[0]) if len(run) == 1 else []
        number = bisect_right(ends, offset)
        if ends and number == len(ends):
            return None
        key = (self.topic.topic_id, paths, number)
        found = self._cache.get(key)
        if found is None:
            if ends:
                with self._open(paths[0]) as file:
                    tables = [file.read_row_group(number, columns=_COLUMNS)]
            else:
                tables = [self._read_file(path) for path in paths]
            found = _sorted(pa.concat_tables([plain_rows(table) for table in tables]))
            self._cache.put(key, found)
        return found if len(found.offsets) and found.offsets[-1] >= offset else None

    def _ends_of_groups(self, path: str) -> list[int]:
        """Return the offset after each row group of a file; [] if row groups are not in order."""
        known = self._ends.get(path)
        if known is None:
            with self._open(path) as file:
                known = _ends_of_groups(file.metadata)
            if len(self._ends) >= _FOOTERS_KEPT:
                self._ends.clear()
            self._ends[path] = known
        return known

    def _read_file(self, path: str) -> pa.Table:
        with self._open(path) as file:
            return file.read(columns=_COLUMNS)

    @contextmanager
    def _open(self, path: str) -> Iterator[pq.ParquetFile]:
        with (
            read_whole(path),
            self._segments.live.files.open_input_file(path) as opened,
            pq.ParquetFile(opened, coerce_int96_timestamp_unit="us") as file,
        ):
            yield file


def _size(record: Record) -> int:
    """Return the size of a record (bytes) without the overhead of Kafka's record format.

    The lengths in each header count as two bytes.
    """
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name.encode()) + len(value or b"") + _HEADER_BYTES
    return size


def _lengths(rows: pa.Table, column: str) -> Array:
    found: Array = pc.fill_null(pc.binary_length(rows.column(column)), 0).to_numpy()
    return found


def _header_sizes(rows: pa.Table) -> Array:
    headers = rows.column("headers").combine_chunks()
    sizes: Array = np.zeros(len(rows), np.int64)
    if headers.null_count < len(headers):
        counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy()
        pairs = headers.flatten()
        for name in ("key", "value"):
            lengths = pc.fill_null(pc.binary_length(pc.struct_field(pairs, name)), 0).to_numpy()
            np.add.at(sizes, np.repeat(np.arange(len(rows)), counts), lengths)
        sizes += counts * _HEADER_BYTES
    return sizes


def _ends_of_groups(metadata: pq.FileMetaData) -> list[int]:
    """Return the offset after each row group by the footer's statistics; [] if not in order."""
    column = next(
        place
        for place in range(metadata.num_columns)
        if metadata.row_group(0).column(place).path_in_schema == "offset"
    )
    ends: list[int] = []
    for number in range(metadata.num_row_groups):
        bounds = metadata.row_group(number).column(column).statistics
        if bounds is None or not bounds.has_min_max or (ends and bounds.min < ends[-1]):
            return []
        ends.append(bounds.max + 1)
    return ends


def plain_rows(rows: pa.Table) -> pa.Table:
    """Cast the columns of a file to the table's types, whichever engine wrote them."""
    return rows.select(_COLUMNS).cast(_SCHEMA)


def _sorted(rows: pa.Table) -> LogRows:
    offsets: Array = rows.column("offset").to_numpy()
    if len(offsets) and np.any(np.diff(offsets) < 0):
        rows = rows.sort_by("offset")
        offsets = rows.column("offset").to_numpy()
    return LogRows(rows, offsets)


def _millis(rows: pa.Table) -> Array:
    times: Array = rows.column("timestamp").cast(_MILLIS, safe=False).cast(pa.int64()).to_numpy()
    return times
