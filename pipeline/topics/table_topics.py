"""Topics with tables as a broker serves them: log starts, log ends, records by offset."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from msgspec import structs

from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.topics.definition import Definitions
from group_coordinator.pipeline.topics.index import Index
from group_coordinator.pipeline.topics.json_values import JsonRows
from group_coordinator.pipeline.topics.log_reader import LogReader, LogRows
from group_coordinator.pipeline.topics.row_groups import RowGroup, RowGroupCache
from group_coordinator.pipeline.topics.table_reader import TableReader
from group_coordinator.pipeline.topics.topic_errors import (
    CannotFollow,
    InvalidTable,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import pyarrow as pa

    from group_coordinator.pipeline.topics.record_batch import Record
    from group_coordinator.schemas.rows import TopicTable

log = logging.getLogger(__name__)

CACHE_BYTES = 256 << 20


class TableTopics:
    """The topics of a root that have tables, as of the last `poll`.

    For one thread at a time. Any number of these objects, in any number of processes, may use one
    root. `only` names the topics to follow, None: all. With `whole_rows` each value is its row as
    JSON, even if the topic has a value column. Each of two caches of decoded rows (users' tables,
    topics' own tables) has `cache_bytes` in Arrow's count, or one row group of any size. Without
    `writes_index` the object reads of a user's table only the rows that others have indexed.
    """

    def __init__(
        self,
        root: str,
        only: Collection[str] | None = None,
        *,
        whole_rows: bool = False,
        cache_bytes: int = CACHE_BYTES,
        writes_index: bool = True,
    ) -> None:
        self._only = only
        self._whole_rows = whole_rows
        self._writes_index = writes_index
        self._definitions = Definitions(root)
        self._index = Index(root)
        self._tables: dict[str, TableReader] = {}
        self._logs: dict[str, LogReader] = {}
        self._cache: RowGroupCache[RowGroup] = RowGroupCache(cache_bytes)
        self._log_cache: RowGroupCache[LogRows] = RowGroupCache(cache_bytes)
        self._json = JsonRows()
        # The state of each topic at the last `changed`: id, partitions and mark.
        self._last_states: dict[str, tuple[str, int, int]] = {}

    # --- what there is ----------------------------------------------------------------------------

    def poll(self) -> bool:
        """Read new topics and new rows; return whether there were any, and may be more.

        A call indexes at most about a million new rows of each topic; to read all, call until False
        is returned. A call without news is one attempt to open a file for the catalogue, the index
        and each table.

        Errors that keep a topic from following its table are in `problems`; other topics are not
        affected. Raises OSError and deltalake's DeltaError if the root's own tables cannot be read.
        """
        changed = self._definitions.poll()
        if changed:
            self._update_readers()
        for log_reader in self._logs.values():
            changed |= _follow(log_reader, log_reader.poll)
        if not self._tables:
            return changed
        changed |= self._index.poll()
        if not self._writes_index:
            return changed
        counts = self._definitions.counts
        stepped = [
            _follow(table, partial(table.step, counts[name]))
            for name, table in self._tables.items()
        ]
        if any(stepped):
            self._index.poll()
            changed = True
        return changed

    def catch_up(self) -> None:
        """Call `poll` until there is nothing new; raise its errors."""
        while self.poll():
            pass

    def refresh(self, topic: str) -> bool:
        """Read new rows of a topic, or new entries for it; return whether there were any.

        Another process may already have served them to a client. Raises Failure if they cannot be
        read: the known log end may be lower than the one that the client knows.
        """
        log_reader = self._logs.get(topic)
        try:
            return self._index.poll() if log_reader is None else log_reader.poll()
        except (DeltaError, OSError) as error:
            raise Failure(f"topic {topic!r} cannot be read: {first_line(error)}") from error

    def changed(self) -> list[str]:
        """Return the topics that are new, deleted or changed since the last call."""
        before = self._last_states
        counts = self._definitions.counts
        readers: dict[str, TableReader | LogReader] = {**self._tables, **self._logs}
        self._last_states = {
            name: (reader.topic.topic_id, counts.get(name, 0), reader.mark)
            for name, reader in readers.items()
        }
        names = before.keys() | self._last_states.keys()
        return sorted(name for name in names if before.get(name) != self._last_states.get(name))

    def _update_readers(self) -> None:
        ignored = set(self._definitions.dead)
        before, self._tables = self._tables, {}
        logs_before, self._logs = self._logs, {}
        for name, topic in self._definitions.topics.items():
            if self._only is not None and name not in self._only:
                ignored.add(topic.topic_id)
                continue
            if topic.config is not None:
                log_reader = logs_before.get(name)
                if log_reader is None or log_reader.topic != topic:
                    json = self._json if self._whole_rows else None
                    log_reader = LogReader(topic, self._log_cache, json)
                self._logs[name] = log_reader
                continue
            if self._whole_rows:
                topic = structs.replace(topic, value_column=None)
            table_reader = before.get(name)
            if table_reader is None or table_reader.topic != topic:
                table_reader = TableReader(topic, self._index, self._cache, self._json)
            self._tables[name] = table_reader
        self._index.ignore(ignored)

    def topics(self) -> Mapping[str, int]:
        """Return the number of partitions of each followed topic with a table."""
        counts = self._definitions.counts
        names = (*self._tables, *self._logs)
        return {name: counts[name] for name in names if name in counts}

    def find(self, topic: str) -> tuple[int, TopicTable | None] | None:
        """Return a topic's number of partitions and its definition (None: it has no table).

        Returns None if there is no such topic. May be called by any thread.
        """
        return self._definitions.find(topic)

    def catalogue(self) -> Mapping[str, int]:
        """Return the number of partitions of each topic of the root, with a table or without."""
        return self._definitions.catalogue

    def problems(self) -> Mapping[str, Exception]:
        """Return the error of each topic that does not follow its table at present.

        A CannotFollow stays until an administrator takes the action in its message. Other errors,
        such as the store's, may be gone after the next `poll`.
        """
        readers: dict[str, TableReader | LogReader] = {**self._tables, **self._logs}
        return {name: reader.problem for name, reader in readers.items() if reader.problem}

    def check_follows(self, topic: str) -> None:
        """Raise CannotFollow if a topic does not follow its table, and so may seem to end early.

        The reason may be any of `problems`.
        """
        problem = self.problems().get(topic)
        if problem is not None:
            raise CannotFollow(f"topic {topic!r}: {problem}") from problem

    def log_start(self, topic: str, partition: int) -> int:
        """Return the first offset that can be read. Raises UnknownTopicOrPartition.

        In a user's table, it moves past the rows of a deleted file only when this object tries to
        read one.
        """
        return self._reader(topic, partition).partition(partition).log_start

    def log_end(self, topic: str, partition: int) -> int:
        """Return the offset of the next record. Raises UnknownTopicOrPartition."""
        return self._reader(topic, partition).partition(partition).log_end

    def offset_for_time(
        self, topic: str, partition: int, timestamp_ms: int
    ) -> tuple[int, int] | None:
        """Return the first offset with this timestamp or a later one, and its timestamp.

        Returns None if there is no such record. Kafka's ListOffsets does the same. Raises
        UnknownTopicOrPartition, TableReplaced.
        """
        return self._reader(topic, partition).offset_for_time(partition, timestamp_ms)

    def offset_of_max_timestamp(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the first offset with the latest timestamp, and that timestamp.

        None if there is no record. Source: KIP-734. Raises the errors of `offset_for_time`.
        """
        index = self._reader(topic, partition).partition(partition)
        while True:
            start, latest = index.log_start, index.max_timestamp()
            found = None if latest is None else self.offset_for_time(topic, partition, latest)
            # The search may have found that the file with that timestamp was deleted.
            if found is not None or index.log_start == start:
                return found

    def reindex(self, topic: str) -> None:
        """Restart a topic with its table's present rows, at offsets after all previous ones.

        Each partition's log starts at its previous end; `poll` indexes the rows. A group that has
        committed the previous end reads all rows. Raises TableReplaced, UnknownTopicOrPartition,
        and InvalidTable for a topic with its own table.
        """
        self._check_partition(topic, 0)
        table = self._tables.get(topic)
        if table is None:
            raise InvalidTable(f"topic {topic!r} has its own table, which has no index to rebuild")
        table.reindex(self._definitions.counts[topic])

    # --- records ----------------------------------------------------------------------------------

    def read(
        self, topic: str, partition: int, offset: int, max_bytes: int, max_records: int
    ) -> list[Record]:
        """Return the records from `offset` on: at least one, if there is any.

        At most `max_records`, and about `max_bytes` of keys, values and headers. There may be
        fewer; the next call continues after them. Raises UnknownTopicOrPartition, OffsetOutOfRange,
        TableReplaced. Raises Failure for a row that cannot be encoded, and if the log end may have
        moved but cannot be read.
        """
        reader = self._refreshed(topic, partition, offset)
        return reader.read(partition, offset, max_bytes, max_records)

    def read_rows(
        self, topic: str, partition: int, offset: int, max_bytes: int, max_records: int
    ) -> pa.Table:
        """Return the records from `offset` on as rows with the columns of `TOPIC_RECORDS`.

        The column `partition` is missing. The limits and errors are the same as for `read`. It is
        faster than `read` for a topic with its own table, whose rows need no conversion.
        """
        reader = self._refreshed(topic, partition, offset)
        return reader.read_rows(partition, offset, max_bytes, max_records)

    def _refreshed(self, topic: str, partition: int, offset: int) -> TableReader | LogReader:
        """Return the topic's reader, after a `refresh` if it does not know the offset yet."""
        if offset > self.log_end(topic, partition):
            # The consumer may have read from another process, which has polled later. If its offset
            # were out of range here, it would reset it, and read records twice or skip some.
            self.refresh(topic)
        return self._reader(topic, partition)

    def _check_partition(self, topic: str, partition: int) -> None:
        if not 0 <= partition < self.topics().get(topic, 0):
            raise UnknownTopicOrPartition(f"there is no partition {partition} of topic {topic!r}")

    def _reader(self, topic: str, partition: int) -> TableReader | LogReader:
        self._check_partition(topic, partition)
        log_reader = self._logs.get(topic)
        return self._tables[topic] if log_reader is None else log_reader


def _follow(reader: TableReader | LogReader, advance: Callable[[], bool]) -> bool:
    """Advance a reader, and store its error as `problem`; return whether anything was new."""
    try:
        found = advance()
    except STORE_FAILS as error:
        if str(error) != str(reader.problem):
            log.warning("topic %s: %s", reader.topic.topic, first_line(error))
        reader.problem = error
        return False
    reader.problem = None
    return found
