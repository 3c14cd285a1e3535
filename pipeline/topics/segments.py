"""Segments of a topic's own table: the table's log is the index from offsets to files.

A file has records of one partition. In addition to Delta's statistics, it has statistics of its
offsets, timestamps and batches of idempotent producers. So readers get all of this from the Delta
checkpoint and the commits, also after a rewrite, and no second table can disagree.

The log end of a partition is a transaction identifier: it outlives the files, and makes two appends
to one partition conflict. Another identifier says that the topic is deleted, so that no writer
appends afterwards.

A file of another engine (OPTIMIZE) lacks these statistics. Offsets and timestamps are then read
from its rows, but the producer state of its batches is lost. So leave compaction to this project.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from group_coordinator.pipeline.delta import DataFile, LiveFiles, read_whole
from group_coordinator.pipeline.tables import SegmentBounds, partition_in, partition_of
from group_coordinator.pipeline.topics.producer_state import ProducerBatch, ProducerStateManager
from group_coordinator.pipeline.topics.topic_errors import naming_topic
from group_coordinator.schemas.decoding import DECODE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from group_coordinator.pipeline.delta import AddedFile, Change


# The transaction identifier that is set when the topic is deleted.
DELETED = "topic-deleted"


class Segment(Struct, frozen=True):
    """A file of one partition: offsets `base` to `end` - 1, perhaps with gaps; timestamps in ms.

    `batches` are the last ones of each producer with batches in the file.
    """

    file: DataFile
    base: int
    end: int
    min_timestamp: int
    max_timestamp: int
    batches: tuple[ProducerBatch, ...] = ()


class _Bounds(SegmentBounds, rename="camel"):
    batches: tuple[ProducerBatch, ...] = ()


class _SegmentStats(Struct, rename="camel"):
    num_records: int | None = None
    segment: _Bounds | None = None


_decode_stats = msgspec.json.Decoder(_SegmentStats).decode
_base = attrgetter("base")


def encode_segment_stats(
    records: int,
    bounds: tuple[int, int, int, int],
    batches: Sequence[ProducerBatch],
) -> str:
    """Return the statistics of a file as JSON.

    `bounds`: base, end, smallest and largest timestamp (ms).
    """
    base, end, least, greatest = bounds
    stats: dict[str, Any] = {
        "numRecords": records,
        "minValues": {"offset": base},
        "maxValues": {"offset": end - 1},
        "nullCount": {"offset": 0},
        "segment": {
            "base": base,
            "end": end,
            "minTimestamp": least,
            "maxTimestamp": greatest,
            "batches": batches,
        },
    }
    return msgspec.json.encode(stats).decode()


def _stats_of(file: AddedFile) -> _SegmentStats:
    try:
        return _decode_stats(file.stats) if file.stats else _SegmentStats()
    except DECODE_ERRORS:
        # The statistics of another engine, in another format.
        return _SegmentStats()


class PartitionSegments:
    """The segments of one partition, in the order of their first offsets."""

    def __init__(self) -> None:
        self.log_end = 0
        self.segments: list[Segment] = []
        self.producers = ProducerStateManager()
        # The latest timestamp of any segment, also of removed ones.
        self.latest_timestamp = -1
        # Whether segments ever overlapped: then an earlier one may end after a later one.
        self._overlap = False

    @property
    def log_start(self) -> int:
        """The first offset of the partition; the log end if it has no records."""
        return self.segments[0].base if self.segments else self.log_end

    def run_from(self, offset: int) -> list[Segment]:
        """Return the first segment that ends after an offset, and those that overlap with it.

        Files of OPTIMIZE overlap, because it joins small files regardless of their offsets.
        """
        place = 0
        if not self._overlap:
            place = max(0, bisect_right(self.segments, offset, key=_base) - 1)
        run: list[Segment] = []
        end = -1
        for segment in self.segments[place:]:
            if segment.end <= offset:
                continue
            if run and segment.base >= end:
                break
            run.append(segment)
            end = max(end, segment.end)
        return run

    def since(self, timestamp_ms: int) -> Iterator[Segment]:
        """Return the segments with a record of this time or a later one."""
        return (each for each in self.segments if each.max_timestamp >= timestamp_ms)

    def max_timestamp(self) -> int | None:
        """Return the latest timestamp of a record, None if there is no record."""
        return max((each.max_timestamp for each in self.segments), default=None)

    def take(self, segment: Segment) -> None:
        """Add a segment."""
        place = bisect_right(self.segments, segment.base, key=_base)
        before, after = self.segments[max(0, place - 1) : place], self.segments[place : place + 1]
        self._overlap |= any(each.end > segment.base for each in before)
        self._overlap |= any(each.base < segment.end for each in after)
        self.segments.insert(place, segment)
        self.log_end = max(self.log_end, segment.end)
        self.latest_timestamp = max(self.latest_timestamp, segment.max_timestamp)

    def drop(self, path: str, base: int) -> None:
        """Remove the segment of a file."""
        place = bisect_left(self.segments, base, key=_base)
        while self.segments[place].file.path != path:
            place += 1
        del self.segments[place]


class Segments:
    """The segments of one topic's own table, as the table grows; for one thread at a time.

    The constructor and `poll` raise Failure and OSError if the table cannot be read. `poll` raises
    TableReplaced if the table was created again, so that its id is not `table_id`.
    """

    def __init__(self, uri: str, table_id: str | None = None) -> None:
        self.live = LiveFiles(uri, table_id)
        self._uri = uri
        # Whether the table was read to its end.
        self.is_whole = False
        # Whether the table says that the topic is deleted (DELETED).
        self.is_deleted = False
        self._partitions: dict[int, PartitionSegments] = defaultdict(PartitionSegments)
        self._places: dict[str, tuple[int, int]] = {}
        # Paths of files for which the caller needs to know whether a commit added one.
        self._watched: frozenset[str] = frozenset()
        # Whether an applied commit has added a watched file.
        self.has_watched_file = False

    def partition(self, number: int) -> PartitionSegments:
        """Return a partition's segments; empty if it has no records."""
        return self._partitions[number]

    def partitions(self) -> dict[int, PartitionSegments]:
        """Return every partition that has or had records, in ascending order."""
        return dict(sorted(self._partitions.items()))

    def poll(self) -> bool:
        """Read new commits; return whether there were any.

        A change is applied completely, or read again by the next call.
        """
        found = False
        with naming_topic(self._uri):
            while (looked := self.live.look()) is not None:
                self.take_next(*looked)
                found = True
        self.is_whole = True
        return found

    def take_next(self, change: Change, behind: LiveFiles) -> None:
        """Apply the commit after the last one that was read, with the position after the commit.

        After an error the state is unchanged.
        """
        # Steps that may fail come before any change of state.
        added = [self._segment(file) for file in self._new_of(change)]
        self._take(change, added)
        self.live = behind

    def watch_files(self, paths: frozenset[str]) -> None:
        """Watch from now on for a commit that adds one of these files."""
        self._watched, self.has_watched_file = paths, False

    def _new_of(self, change: Change) -> list[AddedFile]:
        """Return the added files that are not known, or that the change removes as well.

        If the whole table was read again (`everything`), return all its files.
        """
        known = () if change.everything else self._places.keys() - set(change.removed)
        return [file for file in change.added if file.file not in known]

    def _take(self, change: Change, added: list[tuple[int, Segment]]) -> None:
        """Apply a change, with the segments of its new files; raise nothing."""
        if change.everything:
            self._partitions, self._places = defaultdict(PartitionSegments), {}
        for path in change.removed:
            if path in self._places:
                number, base = self._places.pop(path)
                self.partition(number).drop(path, base)
        for number, segment in sorted(added, key=lambda each: (each[0], each[1].base)):
            partition = self.partition(number)
            if segment.end > partition.log_end or change.everything:
                for batch in segment.batches:
                    partition.producers.add(batch)
            partition.take(segment)
            self._places[segment.file.path] = number, segment.base
            self.has_watched_file |= segment.file.path in self._watched
        self.is_deleted |= DELETED in change.transactions
        for app_id, version in change.transactions.items():
            ended = partition_of(app_id)
            if ended is not None:
                partition = self.partition(ended)
                partition.log_end = max(partition.log_end, version)

    def _segment(self, file: AddedFile) -> tuple[int, Segment]:
        number = partition_in(file.partition_values, file.file)
        stats = _stats_of(file)
        bounds = stats.segment or self._read_bounds(file.file)
        data_file = DataFile(
            file.file,
            file.size or 0,
            file.modification_time,
            stats.num_records,
            file.partition_values,
            file.stats,
        )
        segment = Segment(
            data_file,
            bounds.base,
            bounds.end,
            bounds.min_timestamp,
            bounds.max_timestamp,
            bounds.batches,
        )
        return number, segment

    def _read_bounds(self, path: str) -> _Bounds:
        with read_whole(path), self.live.files.open_input_file(path) as opened:
            rows = pq.read_table(opened, columns=["offset", "timestamp"])
        offsets = pc.min_max(rows.column("offset")).as_py()
        times = rows.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False)
        bounds = pc.min_max(times.cast(pa.int64())).as_py()
        return _Bounds(offsets["min"], offsets["max"] + 1, bounds["min"], bounds["max"])
