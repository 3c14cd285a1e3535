"""Topics that are tables, as a broker serves them: log starts, log ends, records by offset."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from msgspec import structs

from group_coordinator.pipeline.delta.failures import STORE_FAILS
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.topics.definition import Definitions
from group_coordinator.pipeline.topics.errors import (
    CannotFollow,
    InvalidTable,
    UnknownTopicOrPartition,
)
from group_coordinator.pipeline.topics.index import Index
from group_coordinator.pipeline.topics.json_values import JsonRows
from group_coordinator.pipeline.topics.log_reader import LogReader, LogRows
from group_coordinator.pipeline.topics.row_groups import RowGroup, RowGroupCache
from group_coordinator.pipeline.topics.table_reader import TableReader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from group_coordinator.pipeline.topics.record import Record
    from group_coordinator.schemas.rows import TopicTable

log = logging.getLogger(__name__)

CACHE_BYTES = 256 << 20


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
        self._tables: dict[str, TableReader] = {}
        self._logs: dict[str, LogReader] = {}
        self._cache: RowGroupCache[RowGroup] = RowGroupCache(cache_bytes)
        self._log_cache: RowGroupCache[LogRows] = RowGroupCache(cache_bytes)
        self._json = JsonRows()
        # Of each topic what `changed` has told.
        self._told: dict[str, tuple[str, int, int]] = {}

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
        for own in self._logs.values():
            changed |= _follow(own, own.poll)
        if not self._tables:
            return changed
        changed |= self._index.poll()
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
        """Call `poll` until nothing is new; what it raises is raised."""
        while self.poll():
            pass

    def refresh(self, topic: str) -> bool:
        """Take in what others appended to a topic, or indexed of it; return whether there was any.

        Another process may have done so since the last `poll`, and told its client of it. Raises
        Failure where that cannot be told: what is known may be less than somebody knows.
        """
        own = self._logs.get(topic)
        try:
            return self._index.poll() if own is None else own.poll()
        except (DeltaError, OSError) as error:
            raise Failure(f"topic {topic!r} cannot be read: {first_line(error)}") from error

    def changed(self) -> list[str]:
        """Return the topics that are not as they were at the last call: new, deleted or grown."""
        before = self._told
        counts = self._definitions.counts
        readers: dict[str, TableReader | LogReader] = {**self._tables, **self._logs}
        self._told = {
            name: (reader.topic.topic_id, counts.get(name, 0), reader.mark)
            for name, reader in readers.items()
        }
        names = before.keys() | self._told.keys()
        return sorted(name for name in names if before.get(name) != self._told.get(name))

    def _adopt(self) -> None:
        ignored = set(self._definitions.dead)
        before, self._tables = self._tables, {}
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
            if known is None or known.topic != topic:
                known = TableReader(topic, self._index, self._cache, self._json)
            self._tables[name] = known
        self._index.ignore(ignored)

    def topics(self) -> Mapping[str, int]:
        """Return the number of partitions of each topic."""
        counts = self._definitions.counts
        names = (*self._tables, *self._logs)
        return {name: counts[name] for name in names if name in counts}

    def find(self, topic: str) -> tuple[int, TopicTable | None] | None:
        """Return a topic's number of partitions and what it is made of; None if there is none.

        The second is None for a topic without a table. May be asked by any thread.
        """
        return self._definitions.find(topic)

    def catalogue(self) -> Mapping[str, int]:
        """Return the number of partitions of each topic of the root, with a table or without."""
        return self._definitions.catalogue

    def problems(self) -> Mapping[str, Exception]:
        """Return why a topic does not follow its table at present, for each that does not.

        CannotFollow stays until somebody does what its message says; another failure, such as the
        store's, may be gone after the next `poll`.
        """
        readers: dict[str, TableReader | LogReader] = {**self._tables, **self._logs}
        return {name: reader.problem for name, reader in readers.items() if reader.problem}

    def check_follows(self, topic: str) -> None:
        """Raise CannotFollow if a topic does not follow its table, and so seems to end early."""
        problem = self.problems().get(topic)
        if problem is not None:
            raise CannotFollow(f"topic {topic!r}: {problem}") from problem

    def log_start(self, topic: str, partition: int) -> int:
        """Return the first offset that can be read. Raises UnknownTopicOrPartition.

        Rows whose files are gone lie before it, once somebody tried to read one of them here.
        """
        return self._reader(topic, partition).partition(partition).log_start

    def log_end(self, topic: str, partition: int) -> int:
        """Return the offset of the next row to come. Raises UnknownTopicOrPartition."""
        return self._reader(topic, partition).partition(partition).log_end

    def offset_for_time(
        self, topic: str, partition: int, timestamp_ms: int
    ) -> tuple[int, int] | None:
        """Return the first offset whose timestamp is `timestamp_ms` or later, and its timestamp.

        None if there is none. Kafka's ListOffsets. Raises UnknownTopicOrPartition, TableReplaced.
        """
        return self._reader(topic, partition).offset_for_time(partition, timestamp_ms)

    def offset_of_max_timestamp(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the first offset with the latest timestamp there is, and that timestamp.

        None if there is no record. Source: KIP-734. Raises as `offset_for_time` does.
        """
        index = self._reader(topic, partition).partition(partition)
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
        self._check_partition(topic, 0)
        table = self._tables.get(topic)
        if table is None:
            raise InvalidTable(f"topic {topic!r} has a table of its own, which needs no index")
        table.reindex(self._definitions.counts[topic])

    # --- records ----------------------------------------------------------------------------------

    def read(
        self, topic: str, partition: int, offset: int, max_bytes: int, max_records: int
    ) -> list[Record]:
        """Return the records from `offset` on: at least one, if there is any.

        As many as `max_bytes` of keys, values and headers and `max_records` allow, or fewer: the
        next call goes on after them. Raises UnknownTopicOrPartition, OffsetOutOfRange,
        TableReplaced, and Failure for a row that cannot be written as a record, or where the log's
        end may be further than is known and cannot be read.
        """
        if offset > self.log_end(topic, partition):
            # A consumer that another process has served may be further than the last `poll` here.
            # Told that its offset is out of range, it would begin anew or leave records out.
            self.refresh(topic)
        return self._reader(topic, partition).read(partition, offset, max_bytes, max_records)

    def _check_partition(self, topic: str, partition: int) -> None:
        if not 0 <= partition < self.topics().get(topic, 0):
            raise UnknownTopicOrPartition(f"there is no partition {partition} of topic {topic!r}")

    def _reader(self, topic: str, partition: int) -> TableReader | LogReader:
        self._check_partition(topic, partition)
        own = self._logs.get(topic)
        return self._tables[topic] if own is None else own


def _follow(reader: TableReader | LogReader, advance: Callable[[], bool]) -> bool:
    """Take in what is new of a topic, and note why that is not possible; return whether it was."""
    try:
        found = advance()
    except STORE_FAILS as error:
        if str(error) != str(reader.problem):
            log.warning("topic %s: %s", reader.topic.topic, first_line(error))
        reader.problem = error
        return False
    reader.problem = None
    return found
