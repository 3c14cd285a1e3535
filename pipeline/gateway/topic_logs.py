"""The logs that consumers read: the records of each partition, with their offsets.

The records of a topic with a Delta table are the table's rows. The table is a user's table, or a
log table, to which gateways append. A topic that is only in the catalogue has no records: members
are assigned its partitions and commit offsets, and a fetch waits.
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

# The limit of records in one read, whatever their size.
_MOST_RECORDS = 50_000


class Bounds(NamedTuple):
    """The first offset of a partition, and its end offset, which the next record will get."""

    start: int
    end: int


class TopicLogs:
    """The logs of all topics of a root. Only `counts` and `find` are thread-safe."""

    def __init__(self, root: str) -> None:
        self._tables = TableTopics(root)
        self.poll()

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of partitions of each topic, as of the last poll of the catalogue."""
        return self._tables.catalogue()

    def poll(self) -> list[str]:
        """Poll for new topics and rows; return the topics that changed since the last poll."""
        self._tables.poll()
        return self._tables.changed()

    def find(self, topic: str) -> tuple[int, TopicTable | None] | None:
        """Return a topic's number of partitions and its table; see `TableTopics.find`."""
        return self._tables.find(topic)

    def refresh(self, topic: str) -> None:
        """Poll a topic for records that other processes wrote. Raises Failure if that fails."""
        self._tables.refresh(topic)

    def look_at(self, topic: str) -> list[str]:
        """Poll one topic for records; return the changed topics, as `poll` does.

        A failure is ignored, because the next `poll` reports it.
        """
        with suppress(Failure):
            self._tables.refresh(topic)
        return self._tables.changed()

    def bounds(self, topic: str, partition: int) -> Bounds:
        """Return the bounds of a partition. Raises UnknownTopicOrPartition and TableReplaced."""
        if self._has_table(topic, partition):
            return Bounds(
                self._tables.log_start(topic, partition), self._tables.log_end(topic, partition)
            )
        return Bounds(0, 0)

    def offset_for_time(
        self, topic: str, partition: int, timestamp_ms: int
    ) -> tuple[int, int] | None:
        """Return the first offset with this timestamp or a later one, and its timestamp, ms.

        Return None if there is no such record. Raises UnknownTopicOrPartition and TableReplaced,
        and another Failure or OSError if the table cannot be read.
        """
        if self._has_table(topic, partition):
            return self._tables.offset_for_time(topic, partition, timestamp_ms)
        return None

    def offset_of_max_timestamp(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the first offset with the latest timestamp, and that timestamp, ms.

        Return None if there are no records. Raises the errors of `offset_for_time`.
        """
        if self._has_table(topic, partition):
            return self._tables.offset_of_max_timestamp(topic, partition)
        return None

    def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Sequence[Record]:
        """Return records from an offset on: at least one if there is any, whatever its size.

        Raises UnknownTopicOrPartition, OffsetOutOfRange and TableReplaced, and another Failure or
        OSError if the table cannot be read.
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
