"""Indexing of a user's table: each new row is entered in `topic_index` exactly once.

An offset is a row's place within its partition, in the order of the table's commits, a commit's
files and a file's rows. The index table is the only state: the entries of a step are one commit. If
a process is killed, the next one continues after the committed entries.

A commit without `dataChange` (OPTIMIZE) has no new rows; rows keep their offsets and are read from
their original files. A file that is committed twice is indexed once: delta-rs may commit again if a
commit was not acknowledged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.topics.columns import Columns
from group_coordinator.pipeline.topics.row_groups import OpenFile
from group_coordinator.pipeline.topics.table_log import TableLog
from group_coordinator.pipeline.topics.topic_errors import (
    BrokenFile,
    CannotFollow,
    InvalidTable,
    TableReplaced,
)
from group_coordinator.schemas.rows import TopicIndexEntry, TopicTable

if TYPE_CHECKING:
    from group_coordinator.pipeline.topics.index import Index, TopicIndex
    from group_coordinator.pipeline.topics.table_log import TopicCommit, TopicFile

log = logging.getLogger(__name__)

# The maximum files and rows in one commit of the index: a killed process loses little work.
MOST_FILES = 2_000
MOST_ROWS = 1_000_000
# After this many versions without new rows an entry says that they are indexed.
MOST_IDLE_VERSIONS = 100
# How long a topic keeps an error before its table is read again, s.
LOOK_AGAIN_S = 10.0


class _Batch:
    def __init__(self, topic: TopicTable, index: TopicIndex) -> None:
        self._topic = topic
        self._sequence = index.sequence + 1
        self._ends: dict[int, int] = {}
        self._index = index
        self.entries: list[TopicIndexEntry] = []
        self.paths: set[str] = set()
        self.rows = 0

    @property
    def is_full(self) -> bool:
        return len(self.paths) >= MOST_FILES or self.rows >= MOST_ROWS

    def add(self, version: int, added: TopicFile, file: OpenFile, columns: Columns, n: int) -> None:
        """Add the entries of a file's rows, for a topic of `n` partitions."""
        entries = []
        ends = dict(self._ends)
        for number in range(len(file.row_groups)):
            group = file.read(number, n, added.committed_at, columns.placing)
            for partition in group.partitions:
                places = group.places(partition)
                times = group.timestamps[places]
                base = ends.get(partition, self._index.partition(partition).log_end)
                ends[partition] = base + len(places)
                entries.append(
                    TopicIndexEntry(
                        topic=self._topic.topic,
                        topic_id=self._topic.topic_id,
                        sequence=self._sequence,
                        version=version,
                        partition=partition,
                        file=added.path,
                        row_group=number,
                        base_offset=base,
                        count=len(places),
                        min_timestamp=int(times.min()),
                        max_timestamp=int(times.max()),
                        committed_at=added.committed_at,
                        partitions=n,
                        partition_values=added.partition_values,
                    )
                )
        self._ends = ends
        self.paths.add(added.path)
        self.rows += sum(file.row_groups)
        self.entries += entries

    def done(self, version: int) -> None:
        """Add the entry that says that all versions up to this one are indexed."""
        self.entries.append(
            TopicIndexEntry(
                self._topic.topic, self._topic.topic_id, self._sequence, version=version
            )
        )


class Indexer:
    """An indexer of one topic; for one thread at a time."""

    def __init__(self, topic: TopicTable, columns: Columns, index: Index) -> None:
        self.topic = topic
        self.columns = columns
        self.log = TableLog(topic.table, topic.table_id)
        self._index = index
        # The last version that was read without new rows, though no entry says so yet.
        self._idle = -1
        # The last version that is completely in the current batch.
        self._done: int | None = None
        # The snapshot with which the topic begins, while it is being indexed.
        self._snapshot: TopicCommit | None = None
        # The confirmed error, with the sequence and number of partitions for which it holds, and
        # its end (s of `clock.monotonic`). `_suspected` is an error that occurred once.
        self._stopped: tuple[tuple[int, int], CannotFollow, float] | None = None
        self._suspected = ""

    def step(self, partitions: int) -> bool:
        """Index new rows, at most one batch; return whether there were any.

        New rows are assigned to `partitions` partitions. Their entries are then in the index table,
        but not yet in `Index`. A call without new rows is one attempt to open a file.

        Raises CannotFollow after all earlier rows are indexed, and again at each later call. Raises
        TableReplaced, a CannotFollow, at once. Raises OSError.
        """
        index = self._index.topic(self.topic.topic_id)
        if index.problem is not None:
            raise CannotFollow(index.problem)
        state = (index.sequence, partitions)
        if self._stopped is not None:
            stopped_at, error, until = self._stopped
            if stopped_at == state and monotonic() < until:
                # A new exception: one that is raised repeatedly keeps every traceback.
                raise type(error)(str(error))
            self._stopped, self._idle = None, -1
        batch = _Batch(self.topic, index)
        count = max(partitions, index.most_partitions)
        stopped, done = None, index.done
        try:
            done = self._gather(batch, index, count)
        except TableReplaced as error:
            # The entries gathered so far may be of the other table.
            self._stop(state, error)
            raise
        except CannotFollow as error:
            stopped, done = error, self._done
        if done is not None and done != index.done:
            wants = batch.entries or done - (index.done or 0) >= MOST_IDLE_VERSIONS
            if wants or index.done is None:
                batch.done(done)
        if batch.entries:
            if not self._index.append(self.topic.topic_id, batch.entries):
                log.debug("topic %s: another indexer was faster", self.topic.topic)
            return True
        if stopped is not None:
            self._stop(state, stopped)
            raise stopped
        self._suspected = ""
        if done is not None:
            self._idle = done
        return False

    def _stop(self, state: tuple[int, int], error: CannotFollow) -> None:
        """Remember an error; if it occurred twice, `step` raises it unchecked for LOOK_AGAIN_S.

        One read may find a file truncated or missing that the next finds whole, and a folder that
        is missing for longer may come back. A new sequence or number of partitions ends the time.
        """
        if str(error) == self._suspected:
            self._stopped = (state, error, monotonic() + LOOK_AGAIN_S)
        self._suspected = str(error)

    def _gather(self, batch: _Batch, index: TopicIndex, count: int) -> int | None:
        """Add the entries of new rows; return the last version that is completely in them."""
        self._done = index.done
        start = self.topic.start_version if index.restarted_at is None else index.restarted_at
        if self._done is None:
            if start is not None:
                if self._snapshot is None or self._snapshot.version != start:
                    self._snapshot = self.log.snapshot(start)
                if not self._take(batch, index, self._snapshot, count):
                    return None
                self._done, self._snapshot = start, None
            else:
                self._done = -1
        self._done = max(self._done, self._idle)
        while not batch.is_full:
            commit = self.log.read(self._done + 1)
            if commit is None or not self._take(batch, index, commit, count):
                break
            self._done = commit.version
        return self._done if self._done >= 0 else None

    def _take(self, batch: _Batch, index: TopicIndex, commit: TopicCommit, count: int) -> bool:
        """Add the entries of a commit's rows; return False if the batch is full before its end."""
        for added in commit.added:
            if index.has(added.path) or added.path in batch.paths:
                continue
            if batch.is_full:
                return False
            try:
                with OpenFile(
                    self.log.files, added.path, added.partition_values, self.columns
                ) as file:
                    batch.add(commit.version, added, file, self.columns, count)
            except FileNotFoundError as error:
                raise CannotFollow(
                    f"{added.path} of version {commit.version} of {self.topic.table} was deleted "
                    "(by VACUUM?) before its rows were indexed: restart the topic with `topics "
                    "reindex`"
                ) from error
            except BrokenFile as error:
                raise CannotFollow(
                    f"version {commit.version} of {self.topic.table} adds a file that cannot be "
                    f"indexed, and the topic ends before it: {error}"
                ) from error
            except InvalidTable as error:
                raise CannotFollow(
                    f"version {commit.version} of {self.topic.table}, {added.path}: {error}; the "
                    "topic ends before it: give the topic more partitions (`topics alter`)"
                ) from error
        return True
