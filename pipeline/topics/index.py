"""The index of topics that are users' tables: it maps offsets to row groups of files.

It is an append-only Delta table of the root, `topic_index`. A process that finds rows without
entries appends entries for them. Every process, even that one, learns new entries only by reading
the table.

The entries of a commit have the topic's next `sequence`, which is also the version of the topic's
transaction identifier. If two processes index the same rows, one append is refused, and that
process reads the other's entries.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct

from group_coordinator.pipeline.delta import Appender, TableFollower
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables import Absent, ensure_table, table_uri
from group_coordinator.schemas.rows import TopicIndexEntry
from group_coordinator.schemas.tables import TOPIC_INDEX, to_arrow

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta import Appender

_BATCH_ROWS = 10_000


class IndexedFile(Struct, frozen=True):
    """A file of a table: its path, and its partition values as JSON (None: it has none)."""

    path: str
    partition_values: str | None


class Span(Struct, frozen=True):
    """Rows of one partition in one row group of a file: offsets `base` to `end` - 1.

    `file` is the index in `TopicIndex.files`. `partitions` is the number of partitions that the
    topic had when the rows were indexed. Times are in ms.
    """

    base: int
    end: int
    file: int
    row_group: int
    partitions: int
    committed_at: int
    min_timestamp: int


class PartitionIndex:
    """The spans of one partition in the order of their offsets, which have no gaps."""

    def __init__(self) -> None:
        self.log_start = 0
        self.log_end = 0
        # The offset after all rows of all entries, also of entries that contradict others.
        self.most_end = 0
        self._bases = array("q")
        self._files = array("q")
        self._row_groups = array("q")
        self._partitions = array("q")
        self._committed_at = array("q")
        self._min_timestamps = array("q")
        self._max_timestamps = array("q")
        # The latest timestamp of a span and all earlier ones: it never falls, so it can be
        # bisected.
        self._latest = array("q")

    def append(self, entry: TopicIndexEntry, file: int) -> None:
        """Add a span that begins at the log end."""
        latest = entry.max_timestamp or 0
        self._bases.append(self.log_end)
        self._files.append(file)
        self._row_groups.append(entry.row_group or 0)
        self._partitions.append(entry.partitions or 1)
        self._committed_at.append(entry.committed_at or 0)
        self._min_timestamps.append(entry.min_timestamp or 0)
        self._max_timestamps.append(latest)
        self._latest.append(max(latest, self._latest[-1]) if self._latest else latest)
        self.log_end += entry.count

    def spans_from(self, offset: int) -> Iterator[Span]:
        """Yield the span that contains an offset, and all later spans."""
        for place in range(max(0, bisect_right(self._bases, offset) - 1), len(self._bases)):
            yield self._span(place)

    def spans_since(self, timestamp: int) -> Iterator[Span]:
        """Yield the spans from the first with a record of this timestamp or a later one on.

        Spans before the log start are left out.
        """
        for place in range(bisect_left(self._latest, timestamp), len(self._bases)):
            span = self._span(place)
            if span.end > self.log_start:
                yield span

    def max_timestamp(self) -> int | None:
        """Return the latest timestamp since the log start, None if there is no record."""
        first = max(0, bisect_right(self._bases, self.log_start) - 1)
        if self.log_start == self.log_end:
            return None
        return max(self._max_timestamps[first:])

    def end_of(self, files: set[int]) -> int:
        """Return the offset after the last row in any of the files; 0 if there is none."""
        for place in reversed(range(len(self._bases))):
            if self._files[place] in files:
                return self._span(place).end
        return 0

    def _span(self, place: int) -> Span:
        is_last = place + 1 == len(self._bases)
        return Span(
            self._bases[place],
            self.log_end if is_last else self._bases[place + 1],
            self._files[place],
            self._row_groups[place],
            self._partitions[place],
            self._committed_at[place],
            self._min_timestamps[place],
        )


class TopicIndex:
    """The indexed rows of one topic."""

    def __init__(self) -> None:
        self.sequence = 0
        # The last version up to which all rows are indexed; None: none.
        self.done: int | None = None
        # The version of the snapshot with which the last reindex began; None: there was none.
        self.restarted_at: int | None = None
        self.most_partitions = 1
        self.files: list[IndexedFile] = []
        # The error that stops the index until a reindex: entries that contradict each other.
        self.problem: str | None = None
        self._restarted_by = 0
        self._numbers: dict[str, int] = {}
        self._partitions: dict[int, PartitionIndex] = defaultdict(PartitionIndex)

    def partition(self, number: int) -> PartitionIndex:
        """Return a partition's index; it is empty if no row of it is indexed."""
        return self._partitions[number]

    def has(self, path: str) -> bool:
        """Return whether a file was indexed since the last reindex."""
        return path in self._numbers

    def check_follow(self, entries: Sequence[TopicIndexEntry]) -> None:
        """Raise Failure unless the offsets of the entries follow the log ends."""
        ends: dict[int, int] = {}
        for entry in entries:
            if entry.partition is None or entry.file is None:
                continue
            end = ends.get(entry.partition, self.partition(entry.partition).log_end)
            if entry.base_offset != end:
                raise Failure(_does_not_follow(entry, end))
            ends[entry.partition] = end + entry.count

    def take(self, entry: TopicIndexEntry) -> None:
        """Apply an entry, the next of its commit."""
        if entry.partition is None:
            if self.problem is None:
                self.done = entry.version
            return
        partition = self.partition(entry.partition)
        if entry.file is None:
            self._restart(partition, entry)
            return
        partition.most_end = max(partition.most_end, (entry.base_offset or 0) + entry.count)
        if self.problem is None and entry.base_offset != partition.log_end:
            self.problem = _does_not_follow(entry, partition.log_end)
        if self.problem is not None:
            return
        number = self._numbers.get(entry.file)
        if number is None:
            number = self._numbers[entry.file] = len(self.files)
            self.files.append(IndexedFile(entry.file, entry.partition_values))
        self.most_partitions = max(self.most_partitions, entry.partitions or 1)
        partition.append(entry, number)

    def _restart(self, partition: PartitionIndex, entry: TopicIndexEntry) -> None:
        """Restart a partition at the entry's offset, at which its present rows will begin."""
        partition.log_start = partition.log_end = entry.base_offset or 0
        partition.most_end = max(partition.most_end, partition.log_end)
        if self._restarted_by != entry.sequence:
            self._restarted_by = entry.sequence
            self.restarted_at, self.done = entry.version, None
            self.problem = None
            self._numbers.clear()

    def mark_gone(self, missing: set[str]) -> None:
        """Move each log start past the last row of the missing files."""
        numbers = {n for n, file in enumerate(self.files) if file.path in missing}
        for each in self._partitions.values():
            each.log_start = max(each.log_start, each.end_of(numbers))


def _does_not_follow(entry: TopicIndexEntry, end: int) -> str:
    return (
        f"topic_index: the entry at offset {entry.base_offset} of partition {entry.partition} of "
        f"topic {entry.topic!r} does not follow offset {end}: restart it with `topics reindex`"
    )


class Index:
    """A follower of the index table of a root; for one thread at a time.

    If the entries of a topic contradict each other, only that topic has a `problem`.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._table = TableFollower(
            table_uri(root, TOPIC_INDEX),
            TOPIC_INDEX.schema.names,
            self._take,
            Absent(root, TOPIC_INDEX).is_there,
        )
        self._appender: Appender | None = None
        self._topics: dict[str, TopicIndex] = defaultdict(TopicIndex)
        self._ignored: set[str] = set()

    @property
    def is_read(self) -> bool:
        """Whether the table was read, even if it is missing or empty."""
        return self._table.is_read

    def topic(self, topic_id: str) -> TopicIndex:
        """Return the index of a topic as of the last `poll`."""
        return self._topics[topic_id]

    def ignore(self, topic_ids: set[str]) -> None:
        """Drop the entries of topics that are deleted or not wanted, and ignore later ones."""
        self._ignored = topic_ids
        for topic_id in topic_ids & self._topics.keys():
            del self._topics[topic_id]

    def append(self, topic_id: str, entries: Sequence[TopicIndexEntry]) -> bool:
        """Append entries of one sequence; return False if another process wrote that sequence.

        Raises the errors of `Appender.append`, and Failure unless the offsets follow the log ends.
        """
        self.topic(topic_id).check_follow(entries)
        if self._appender is None:
            ensure_table(self._root, TOPIC_INDEX)
            self._appender = Appender(table_uri(self._root, TOPIC_INDEX))
        rows = to_arrow(TOPIC_INDEX, entries)
        return self._appender.append(rows, f"topic-index/{topic_id}", entries[0].sequence)

    def poll(self) -> bool:
        """Read new entries; return whether there were any. One attempt to open a file.

        Raises the errors of reading the table; the index is then unchanged.
        """
        return self._table.poll()

    def _take(self, _known: bool | None, rows: pa.Table, is_whole: bool) -> bool:
        """Apply entries; raise nothing."""
        if is_whole:
            # By offset within a sequence. The entry that completes a version has none and comes
            # last.
            rows = rows.sort_by([("sequence", "ascending"), ("base_offset", "ascending")])
        before: dict[str, int] = {}
        for entry in _entries(rows):
            if entry.topic_id in self._ignored:
                continue
            topic = self.topic(entry.topic_id)
            # An entry of an applied sequence is read for the second time.
            if entry.sequence <= before.setdefault(entry.topic_id, topic.sequence):
                continue
            topic.sequence = entry.sequence
            topic.take(entry)
        return True


def _entries(rows: pa.Table) -> Iterator[TopicIndexEntry]:
    """Yield the rows as entries; at most _BATCH_ROWS of them are Python objects at a time."""
    for batch in rows.select(TopicIndexEntry.__struct_fields__).to_batches(_BATCH_ROWS):
        yield from map(TopicIndexEntry, *(column.to_pylist() for column in batch.columns))
