"""Topics that are tables, as a broker serves them: log starts, log ends, records by offset."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Collection, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError
from msgspec import structs
from pyarrow.fs import FileSelector, FileType

from pipeline.delta.table import open_delta
from pipeline.errors import Failure, first_line
from pipeline.topics.columns import Columns, as_bytes
from pipeline.topics.definition import Definitions, column_types
from pipeline.topics.errors import (
    InvalidTable,
    OffsetOutOfRange,
    TableReplaced,
    UnknownTopicOrPartition,
)
from pipeline.topics.index import Index, PartitionIndex, Span
from pipeline.topics.indexer import Indexer
from pipeline.topics.json_values import JsonRows
from pipeline.topics.log_reader import LogReader, LogRows
from pipeline.topics.record import Record
from pipeline.topics.row_groups import OpenFile, RowGroup, RowGroupCache
from schemas.rows import TopicIndexEntry, TopicTable

if TYPE_CHECKING:
    from pipeline.topics.murmur2 import Array
    from pipeline.topics.segments import PartitionSegments

log = logging.getLogger(__name__)

CACHE_BYTES = 256 << 20
# How many row groups one `read` opens at most: each costs a millisecond and more.
MOST_OPENED = 64


class _Topic:
    """One topic: its indexer, and how much larger its records are than their rows in Arrow."""

    def __init__(self, topic: TopicTable, index: Index) -> None:
        self.topic = topic
        self._index = index
        self._indexer: Indexer | None = None
        self.problem: Exception | None = None
        self.growth = 1.5
        # Columns of files that the table does not have.
        self._foreign: set[str] = set()

    @property
    def indexer(self) -> Indexer:
        """Made when it is needed first: raises TableReplaced if the table does not exist."""
        if self._indexer is None:
            try:
                handle = open_delta(self.topic.table)
            except TableNotFoundError as error:
                raise TableReplaced(
                    f"there is no Delta table at {self.topic.table} any more"
                ) from error
            columns = Columns(self.topic, column_types(handle))
            self._indexer = Indexer(self.topic, columns, self._index)
        return self._indexer

    def learn(self, columns: set[str]) -> None:
        """Look up the types of columns that the table was given since they were looked up last."""
        known = self.indexer.columns.types
        if not columns <= known.keys() | self._foreign:
            known.update(column_types(open_delta(self.topic.table)))
            self._foreign |= columns - known.keys()

    def step(self, partitions: int) -> bool:
        """Index what is new, and take down why that is not possible; return whether it was."""
        try:
            found = self.indexer.step(partitions)
        except (Failure, DeltaError, OSError) as error:
            if str(error) != str(self.problem):
                log.warning("topic %s: %s", self.topic.topic, first_line(error))
            self.problem = error
            return False
        self.problem = None
        return found


class TableTopics:
    """The topics of a root that are tables; `poll` brings them up to date.

    For one thread at a time. Any number of processes and of these objects may work on one root.
    `only` names the topics to keep up to date, None all. With `whole_rows` each value is its row as
    JSON, whatever the topic's value is. `cache_bytes` bounds the rows that are kept decoded, by
    Arrow's count; one row group is held whatever its size.
    """

    def __init__(
        self,
        root: str,
        only: Collection[str] | None = None,
        *,
        whole_rows: bool = False,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._only = only
        self._whole_rows = whole_rows
        self._definitions = Definitions(root)
        self._index = Index(root)
        self._topics: dict[str, _Topic] = {}
        self._logs: dict[str, LogReader] = {}
        self._cache: RowGroupCache[RowGroup] = RowGroupCache(cache_bytes)
        self._log_cache: RowGroupCache[LogRows] = RowGroupCache(cache_bytes)
        self._json = JsonRows()

    # --- what there is ----------------------------------------------------------------------------

    def poll(self) -> bool:
        """Look for new topics and new rows; return whether anything is new, and may be more.

        A call indexes about a million new rows of a topic at most: who wants all calls until False.
        Where nothing is new it costs one attempt to open a file for the catalogue, one for the
        index and one for each table. What keeps a topic from following its table is in `problems`;
        the other topics are not disturbed. Raises OSError and deltalake's DeltaError if the root's
        own tables cannot be read.
        """
        changed = self._definitions.poll()
        if changed:
            self._adopt()
        for log_reader in self._logs.values():
            changed |= self._poll_log(log_reader)
        if not self._topics:
            return changed
        changed |= self._index.poll()
        counts = self._definitions.counts
        stepped = [topic.step(counts[name]) for name, topic in self._topics.items()]
        if any(stepped):
            self._index.poll()
            changed = True
        return changed

    def refresh(self, topic: str) -> bool:
        """Take in what others appended to a topic, or indexed of it; return whether there was any.

        Another process may have done so since the last `poll`, and told its client of it.
        """
        own = self._logs.get(topic)
        return self._index.poll() if own is None else self._poll_log(own)

    def _poll_log(self, topic: LogReader) -> bool:
        try:
            found = topic.poll()
        except (Failure, DeltaError, OSError) as error:
            if str(error) != str(topic.problem):
                log.warning("topic %s: %s", topic.topic.topic, first_line(error))
            topic.problem = error
            return False
        topic.problem = None
        return found

    def _adopt(self) -> None:
        ignored = set(self._definitions.dead)
        before, self._topics = self._topics, {}
        logs_before, self._logs = self._logs, {}
        for name, topic in self._definitions.topics.items():
            if self._only is not None and name not in self._only:
                ignored.add(topic.topic_id)
                continue
            if topic.config is not None:
                known_log = logs_before.get(name)
                if known_log is None or known_log.topic != topic:
                    json = self._json if self._whole_rows else None
                    known_log = LogReader(topic, self._log_cache, json)
                self._logs[name] = known_log
                continue
            if self._whole_rows:
                topic = structs.replace(topic, value_column=None)
            known = before.get(name)
            same = known is not None and known.topic == topic
            self._topics[name] = known if known and same else _Topic(topic, self._index)
        self._index.ignore(ignored)

    def topics(self) -> Mapping[str, int]:
        """Return the number of partitions of each topic."""
        counts = self._definitions.counts
        names = (*self._topics, *self._logs)
        return {name: counts[name] for name in names if name in counts}

    def definition(self, topic: str) -> TopicTable | None:
        """Return what a topic is made of as of the last `poll`; may be asked by any thread."""
        return self._definitions.topics.get(topic)

    def catalogue(self) -> Mapping[str, int]:
        """Return the number of partitions of each topic of the root, with a table or without."""
        return self._definitions.catalogue

    def problems(self) -> Mapping[str, Exception]:
        """Return why a topic does not follow its table at present, for each that does not.

        CannotFollow stays until somebody does what its message says; another failure, such as the
        store's, may be gone after the next `poll`.
        """
        found = {name: topic.problem for name, topic in self._topics.items()}
        found |= {name: topic.problem for name, topic in self._logs.items()}
        return {name: problem for name, problem in found.items() if problem}

    def log_start(self, topic: str, partition: int) -> int:
        """Return the first offset that can be read. Raises UnknownTopicOrPartition.

        Rows whose files are gone lie before it, once somebody tried to read one of them here.
        """
        return self._partition(topic, partition).log_start

    def log_end(self, topic: str, partition: int) -> int:
        """Return the offset of the next row to come. Raises UnknownTopicOrPartition."""
        return self._partition(topic, partition).log_end

    def offset_for_time(
        self, topic: str, partition: int, timestamp_ms: int
    ) -> tuple[int, int] | None:
        """Return the first offset whose timestamp is `timestamp_ms` or later, and its timestamp.

        None if there is none. Kafka's ListOffsets. Raises UnknownTopicOrPartition, TableReplaced.
        """
        if topic in self._logs:
            return self._log(topic, partition).offset_for_time(partition, timestamp_ms)
        index = self._index_of(topic, partition)
        for span in index.spans_since(timestamp_ms):
            try:
                group = self._row_group(self._topics[topic], span)
            except FileNotFoundError:
                self._mark_gone(self._topics[topic])
                if span.end > index.log_start:
                    raise
                return self.offset_for_time(topic, partition, timestamp_ms)
            times = group.timestamps[group.places(partition)]
            late = np.flatnonzero(times >= timestamp_ms)
            if len(late):
                return span.base + int(late[0]), int(times[late[0]])
        return None

    def offset_of_max_timestamp(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the first offset with the latest timestamp there is, and that timestamp.

        None if there is no record. Source: KIP-734. Raises as `offset_for_time` does.
        """
        index = self._partition(topic, partition)
        while True:
            start, latest = index.log_start, index.max_timestamp()
            found = None if latest is None else self.offset_for_time(topic, partition, latest)
            # The search may find that the file with the latest timestamp is gone.
            if found is not None or index.log_start == start:
                return found

    def reindex(self, topic: str) -> None:
        """Begin a topic anew with the rows that its table has now, at offsets after all present.

        Each partition's log starts at its present end; `poll` indexes the rows. A group whose
        committed offset is the old end is given all the table's rows. Raises TableReplaced,
        UnknownTopicOrPartition, InvalidTable.
        """
        self._index_of(topic, 0)
        one = self._topics[topic]
        while not self._index.append(one.topic.topic_id, self._restart(one)):
            self._index.poll()
        self._index.poll()

    def _restart(self, topic: _Topic) -> list[TopicIndexEntry]:
        version = topic.indexer.log.newest_version()
        index = self._index.topic(topic.topic.topic_id)
        count = max(self._definitions.counts[topic.topic.topic], index.most_partitions)
        return [
            TopicIndexEntry(
                topic=topic.topic.topic,
                topic_id=topic.topic.topic_id,
                sequence=index.sequence + 1,
                version=version,
                partition=number,
                base_offset=index.partition(number).log_end,
            )
            for number in range(count)
        ]

    # --- records ----------------------------------------------------------------------------------

    def read(
        self, topic: str, partition: int, offset: int, max_bytes: int, max_records: int
    ) -> list[Record]:
        """Return the records from `offset` on: at least one, if there is any.

        As many as `max_bytes` of keys and values and `max_records` allow, or fewer: the next call
        goes on after them. Raises UnknownTopicOrPartition, OffsetOutOfRange, TableReplaced, and
        Failure for a row that cannot be written as a record.
        """
        if offset > self.log_end(topic, partition):
            # A consumer that another process has served may be further than the last `poll` here.
            # Told that its offset is out of range, it would begin anew or leave records out.
            self.refresh(topic)
        if topic in self._logs:
            return self._log(topic, partition).read(partition, offset, max_bytes, max_records)
        index = self._index_of(topic, partition)
        self._check_range(topic, partition, index, offset)
        if offset == index.log_end or max_records < 1:
            return []
        one = self._topics[topic]
        try:
            pieces = self._gather(one, partition, index, offset, max_bytes, max_records)
        except FileNotFoundError:
            self._mark_gone(one)
            self._check_range(topic, partition, index, offset)
            raise
        return self._records(one, pieces, offset, max_bytes)

    def _check_range(self, topic: str, partition: int, index: PartitionIndex, offset: int) -> None:
        if not index.log_start <= offset <= index.log_end:
            raise OffsetOutOfRange(
                f"topic {topic!r} has no offset {offset} in partition {partition}, only "
                f"{index.log_start} to {index.log_end}"
            )

    def _gather(
        self,
        topic: _Topic,
        partition: int,
        index: PartitionIndex,
        offset: int,
        max_bytes: int,
        max_records: int,
    ) -> list[tuple[pa.Table, Array]]:
        """Return rows with their timestamps, about as many as are asked for, of one schema."""
        pieces: list[tuple[pa.Table, Array]] = []
        size, count = 0.0, 0
        for opened, span in enumerate(index.spans_from(offset)):
            if pieces and (opened >= MOST_OPENED or size >= max_bytes or count >= max_records):
                break
            try:
                group = self._row_group(topic, span)
            except (FileNotFoundError, Failure):
                # The records before a file that is gone or torn are read all the same.
                if pieces:
                    break
                raise
            if pieces and group.rows.schema != pieces[0][0].schema:
                break
            places = group.places(partition)
            if len(places) != span.end - span.base:
                path = self._index.topic(topic.topic.topic_id).files[span.file].path
                raise Failure(
                    f"{path} of {topic.topic.table} was changed: it has {len(places)} rows for "
                    f"offsets {span.base} to {span.end}"
                )
            row_bytes = max(1.0, topic.growth * group.rows.nbytes / max(1, group.rows.num_rows))
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
        topic: _Topic,
        pieces: list[tuple[pa.Table, Array]],
        offset: int,
        max_bytes: int,
    ) -> list[Record]:
        rows = pa.concat_tables([rows for rows, _ in pieces])
        times = np.concatenate([times for _, times in pieces]).tolist()
        key, value = topic.topic.key_column, topic.topic.value_column
        keys = [None] * len(times) if key is None else as_bytes(rows, key).to_pylist()
        values = self._json.encode(rows) if value is None else as_bytes(rows, value).to_pylist()
        sizes = [len(k or b"") + len(v or b"") for k, v in zip(keys, values, strict=True)]
        if rows.nbytes:
            topic.growth = (topic.growth + max(0.1, sum(sizes) / rows.nbytes)) / 2
        fitting = max(1, bisect_right(list(accumulate(sizes)), max_bytes))
        return [
            Record(*each)
            for each in zip(range(offset, offset + fitting), times, keys, values, strict=False)
        ]

    def _row_group(self, topic: _Topic, span: Span) -> RowGroup:
        """Return the row group of a span; raises FileNotFoundError if its file is gone."""
        key = (topic.topic.topic_id, span.file, span.row_group)
        group = self._cache.get(key)
        if group is None:
            indexer = topic.indexer
            file = self._index.topic(topic.topic.topic_id).files[span.file]
            with OpenFile(
                indexer.log.files, file.path, file.partition_values, indexer.columns
            ) as opened:
                topic.learn(opened.columns)
                group = opened.read(
                    span.row_group, span.partitions, span.committed_at, indexer.columns.served
                )
            self._cache.put(key, group)
        return group

    def _mark_gone(self, topic: _Topic) -> None:
        """Move the log starts behind every file that is gone: one listing of the table's files."""
        listed = topic.indexer.log.files.get_file_info(FileSelector("", recursive=True))
        present = {info.path.lstrip("/") for info in listed if info.type == FileType.File}
        index = self._index.topic(topic.topic.topic_id)
        missing = {file.path for file in index.files} - present
        log.warning(
            "topic %s: %d files of %s are gone (vacuumed?), and the records in them",
            topic.topic.topic,
            len(missing),
            topic.topic.table,
        )
        index.mark_gone(missing)

    def _partition(self, topic: str, partition: int) -> PartitionIndex | PartitionSegments:
        if topic in self._logs:
            return self._log(topic, partition).partition(partition)
        return self._index_of(topic, partition)

    def _log(self, topic: str, partition: int) -> LogReader:
        self._check_partition(topic, partition)
        return self._logs[topic]

    def _index_of(self, topic: str, partition: int) -> PartitionIndex:
        self._check_partition(topic, partition)
        one = self._topics.get(topic)
        if one is None:
            raise InvalidTable(f"topic {topic!r} has a table of its own, which needs no index")
        if isinstance(one.problem, TableReplaced):
            raise TableReplaced(str(one.problem))
        return self._index.topic(one.topic.topic_id).partition(partition)

    def _check_partition(self, topic: str, partition: int) -> None:
        if not 0 <= partition < self.topics().get(topic, 0):
            raise UnknownTopicOrPartition(f"there is no partition {partition} of topic {topic!r}")
