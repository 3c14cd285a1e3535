"""What consumers read: the records of each partition, with their offsets.

A topic that is a Delta table has the table's rows. A topic of which only the catalogue knows has no
records: members share its partitions and commit offsets of it, and a fetch waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pipeline.gateway.record_batch import Record


class OffsetOutOfRange(Exception):
    """An offset before the first record that there is, or after the last one."""


class Page(NamedTuple):
    """Records from `first_offset` on, without gaps."""

    first_offset: int
    records: list[Record]


class TopicLog(Protocol):
    """The log of one topic's partitions. Called in a thread of its own, one call at a time."""

    def start(self, partition: int) -> int:
        """The offset of the first record that can be read."""

    def end(self, partition: int) -> int:
        """The offset that the next record will have: Kafka's high watermark."""

    def offset_for_time(self, partition: int, timestamp: int) -> tuple[int, int] | None:
        """The first offset with a timestamp of at least so many ms, and that timestamp."""

    def read(self, partition: int, offset: int, max_bytes: int) -> Page | None:
        """Records from an offset on, one at least if there is any; raises OffsetOutOfRange."""


class EmptyLog:
    """The log of a topic without a table."""

    def start(self, partition: int) -> int:  # noqa: ARG002
        """Its first offset."""
        return 0

    def end(self, partition: int) -> int:  # noqa: ARG002
        """Its end is its beginning."""
        return 0

    def offset_for_time(self, partition: int, timestamp: int) -> tuple[int, int] | None:  # noqa: ARG002
        """There is no record of any time."""
        return None

    def read(self, partition: int, offset: int, max_bytes: int) -> Page | None:  # noqa: ARG002
        """There is nothing to read; offset 0 is where the first record will be."""
        if offset != 0:
            raise OffsetOutOfRange(f"offset {offset} of a topic without records")
        return None
