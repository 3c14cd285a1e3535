"""The index of topics that are tables: which offsets are where.

The index is an append-only Delta table of the root, `topic_index`. Whoever finds rows that are not
indexed appends entries for them, and everybody, who appended included, learns what is indexed only
by reading the table. The entries of a commit carry the topic's next `sequence`, which is also the
version of the topic's application in Delta's transaction identifiers: of two that index the same
rows one is refused, and reads the other's entries.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.exceptions import TableNotFoundError
from msgspec import Struct

from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.open import open_appender
from group_coordinator.pipeline.delta.tail import follow
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.store import ensure_table, open_table, table_uri
from group_coordinator.schemas.rows import TopicIndexEntry
from group_coordinator.schemas.tables import TOPIC_INDEX, to_arrow

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta.appender import Appender
    from group_coordinator.pipeline.delta.tail import Tail

log = logging.getLogger(__name__)

_BATCH_ROWS = 10_000


class IndexedFile(Struct, frozen=True):
    """A file of a table: its path, and its partition values as JSON, None if it has none."""

    path: str
    partition_values: str | None


class Span(Struct, frozen=True):
    """Rows of one partition in one row group of a file: offsets `base` to `end` - 1."""

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
        self._bases = array("q")
        self._files = array("q")
        self._row_groups = array("q")
        self._partitions = array("q")
        self._committed_at = array("q")
        self._min_timestamps = array("q")
        self._max_timestamps = array("q")
        # The latest timestamp of a span and of all before it: rises, so that it can be bisected.
        self._latest = array("q")

    def append(self, entry: TopicIndexEntry, file: int) -> None:
        """Add a span, whose base must be the log end."""
        if entry.base_offset != self.log_end:
            raise Failure(
                f"topic_index: the entry at offset {entry.base_offset} of partition "
                f"{entry.partition} of topic {entry.topic!r} does not follow offset {self.log_end}"
            )
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
        """Yield the spans from the one that has an offset on."""
        for place in range(max(0, bisect_right(self._bases, offset) - 1), len(self._bases)):
            yield self._span(place)

    def spans_since(self, timestamp: int) -> Iterator[Span]:
        """Yield the spans from the first one that has a record of the timestamp or a later one."""
        for place in range(bisect_left(self._latest, timestamp), len(self._bases)):
            span = self._span(place)
            if span.end > self.log_start:
                yield span

    def max_timestamp(self) -> int | None:
        """Return the latest timestamp from the log start on, None where there is no record."""
        first = max(0, bisect_right(self._bases, self.log_start) - 1)
        if self.log_start == self.log_end:
            return None
        return max(self._max_timestamps[first:])

    def end_of(self, files: set[int]) -> int:
        """Return the offset after the last row that is in one of the files; 0 if none is."""
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
    """What is indexed of one topic."""

    def __init__(self) -> None:
        self.sequence = 0
        # Every version up to this one is wholly indexed; None: none is.
        self.done: int | None = None
        # The version with whose rows the topic was begun anew, None if it never was.
        self.restarted_at: int | None = None
        self.most_partitions = 1
        self.files: list[IndexedFile] = []
        self._restarted_by = 0
        self._numbers: dict[str, int] = {}
        self._partitions: dict[int, PartitionIndex] = {}

    def partition(self, number: int) -> PartitionIndex:
        """Return a partition's index, an empty one if nothing of it is indexed."""
        found = self._partitions.get(number)
        if found is None:
            found = self._partitions[number] = PartitionIndex()
        return found

    def has(self, path: str) -> bool:
        """Whether a file is indexed, since the topic was begun anew if it was."""
        return path in self._numbers

    def take(self, entry: TopicIndexEntry) -> None:
        """Take in an entry, the next of its commit."""
        if entry.partition is None:
            self.done = entry.version
        elif entry.file is None:
            self.partition(entry.partition).log_start = entry.base_offset or 0
            if self._restarted_by != entry.sequence:
                self._restarted_by = entry.sequence
                self.restarted_at, self.done = entry.version, None
                self._numbers.clear()
        else:
            number = self._numbers.get(entry.file)
            if number is None:
                number = self._numbers[entry.file] = len(self.files)
                self.files.append(IndexedFile(entry.file, entry.partition_values))
            self.most_partitions = max(self.most_partitions, entry.partitions or 1)
            self.partition(entry.partition).append(entry, number)

    def mark_gone(self, missing: set[str]) -> None:
        """Move each log start behind the last row of the files, which are missing."""
        numbers = {n for n, file in enumerate(self.files) if file.path in missing}
        for each in self._partitions.values():
            each.log_start = max(each.log_start, each.end_of(numbers))


class Index:
    """The index table of a root, followed; for one thread at a time.

    `only`: the ids of the topics to keep; None keeps all.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._tail: Tail | None = None
        self._appender: Appender | None = None
        self._topics: dict[str, TopicIndex] = {}
        self._ignored: set[str] = set()

    def topic(self, topic_id: str) -> TopicIndex:
        """Return what is indexed of a topic as of the last `poll`."""
        found = self._topics.get(topic_id)
        if found is None:
            found = self._topics[topic_id] = TopicIndex()
        return found

    def ignore(self, topic_ids: set[str]) -> None:
        """Forget topics that are deleted."""
        self._ignored = topic_ids
        for topic_id in topic_ids & self._topics.keys():
            del self._topics[topic_id]

    def append(self, topic_id: str, entries: Sequence[TopicIndexEntry]) -> bool:
        """Append entries, all of one sequence; False if others have written that sequence.

        Raises what `Appender.append` raises.
        """
        if self._appender is None:
            ensure_table(self._root, TOPIC_INDEX)
            self._appender = open_appender(table_uri(self._root, TOPIC_INDEX))
        rows = to_arrow(TOPIC_INDEX, entries)
        return self._appender.append(rows, f"topic-index/{topic_id}", entries[0].sequence)

    def poll(self) -> bool:
        """Take in new entries; return whether there are any. One attempt to open a file."""
        if self._tail is None:
            return self._read()
        try:
            rows = self._tail.poll()
        except LogGone:
            log.info("topic_index is read anew: its log was cleaned up meanwhile")
            return self._read()
        if rows is None:
            return False
        self._take(rows)
        return True

    def _read(self) -> bool:
        # The tail begins before the rows are read: entries that are committed between the two are
        # read twice instead of being missed.
        try:
            self._tail = follow(table_uri(self._root, TOPIC_INDEX), TOPIC_INDEX.schema.names)
            rows = open_table(self._root, TOPIC_INDEX).to_pyarrow_table(
                columns=TOPIC_INDEX.schema.names
            )
        except TableNotFoundError:
            return False
        # Within a sequence by offset, and the entry that says that a version is done at the end.
        self._take(rows.sort_by([("sequence", "ascending"), ("base_offset", "ascending")]))
        return True

    def _take(self, rows: pa.Table) -> None:
        before: dict[str, int] = {}
        for entry in _entries(rows):
            if entry.topic_id in self._ignored:
                continue
            topic = self.topic(entry.topic_id)
            # An entry of a sequence that was taken in before is read for the second time.
            if entry.sequence <= before.setdefault(entry.topic_id, topic.sequence):
                continue
            topic.sequence = entry.sequence
            topic.take(entry)


def _entries(rows: pa.Table) -> Iterator[TopicIndexEntry]:
    """Yield the rows as entries; at any time a batch of them are Python objects."""
    for batch in rows.select(TopicIndexEntry.__struct_fields__).to_batches(_BATCH_ROWS):
        yield from map(TopicIndexEntry, *(column.to_pylist() for column in batch.columns))
