"""What consumers read: the records of each partition, with their offsets.

A topic that is a Delta table has the table's rows, be it a user's table or one of its own, which
gateways append to. A topic of which only the catalogue knows has no records: members share its
partitions and commit offsets of it, and a fetch waits.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.topics import OffsetOutOfRange, TableTopics, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from group_coordinator.pipeline.topics import Record
    from group_coordinator.schemas.rows import TopicTable

# So many records are read at once at most, however small they are.
_MOST_RECORDS = 50_000


class Bounds(NamedTuple):
    """The first offset that can be read, and the one that the next record will have."""

    start: int
    end: int


class TopicLogs:
    """The logs of all topics of a root; all but `counts` and `find` is for one thread at a time."""

    def __init__(self, root: str) -> None:
        self._tables = TableTopics(root)
        self.poll()

    @property
    def counts(self) -> Mapping[str, int]:
        """Each topic's number of partitions, as of the last look at the catalogue."""
        return self._tables.catalogue()

    def poll(self) -> list[str]:
        """Look for new topics and new rows; return the topics that changed since the last look."""
        self._tables.poll()
        return self._tables.changed()

    def find(self, topic: str) -> tuple[int, TopicTable | None] | None:
        """A topic's number of partitions and what it is made of, as `TableTopics.find` says it."""
        return self._tables.find(topic)

    def refresh(self, topic: str) -> None:
        """Look for records of a topic that other processes know of; raises Failure if it cannot."""
        self._tables.refresh(topic)

    def look_at(self, topic: str) -> list[str]:
        """Look for records of a topic; return what `poll` does, which says why it cannot."""
        with suppress(Failure):
            self._tables.refresh(topic)
        return self._tables.changed()

    def bounds(self, topic: str, partition: int) -> Bounds:
        """Where a partition begins and ends. Raises UnknownTopicOrPartition, TableReplaced."""
        if self._has_table(topic, partition):
            return Bounds(
                self._tables.log_start(topic, partition), self._tables.log_end(topic, partition)
            )
        return Bounds(0, 0)

    def offset_for_time(
        self, topic: str, partition: int, timestamp_ms: int
    ) -> tuple[int, int] | None:
        """The first offset of this time or later, and its timestamp; None if there is none.

        Raises UnknownTopicOrPartition, TableReplaced, and another Failure or OSError where the
        table cannot be read.
        """
        if self._has_table(topic, partition):
            return self._tables.offset_for_time(topic, partition, timestamp_ms)
        return None

    def offset_of_max_timestamp(self, topic: str, partition: int) -> tuple[int, int] | None:
        """The first offset with the latest timestamp, and that; None if there is no record.

        Raises as `offset_for_time` does.
        """
        if self._has_table(topic, partition):
            return self._tables.offset_of_max_timestamp(topic, partition)
        return None

    def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Sequence[Record]:
        """Records from an offset on, one at least if there is any.

        Raises UnknownTopicOrPartition, OffsetOutOfRange, TableReplaced, and another Failure or
        OSError where the table cannot be read.
        """
        if self._has_table(topic, partition):
            return self._tables.read(topic, partition, offset, max_bytes, _MOST_RECORDS)
        if offset != 0:
            raise OffsetOutOfRange(f"topic {topic!r} has no records, so no offset {offset}")
        return []

    def _has_table(self, topic: str, partition: int) -> bool:
        if not 0 <= partition < self.counts.get(topic, 0):
            raise UnknownTopicOrPartition(f"there is no {topic}-{partition}")
        return topic in self._tables.topics()
