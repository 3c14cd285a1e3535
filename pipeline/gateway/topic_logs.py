"""The topics of a gateway and their logs: the records of each partition, with their offsets.

A thread outside the event loop reads and polls them. The records of a topic are the rows of its
Delta table: a user's table, or a log table, to which gateways append. A topic without a table has
no records: members are assigned its partitions and commit offsets, and a fetch waits.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.fair_threads import GATEWAY, FairThreadPool, Owner
from group_coordinator.pipeline.gateway.polling import SingleFlight, poll_forever
from group_coordinator.pipeline.topics import OffsetOutOfRange, TableTopics, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from group_coordinator.pipeline.topics import Record
    from group_coordinator.schemas.rows import TopicTable

log = logging.getLogger(__name__)

T = TypeVar("T")
# The time between two polls for new rows, s.
_POLL_EVERY_S = 0.1
# The owner of polls of topics that clients wrote to. They take turns with reads of clients.
_WRITERS = Owner("", "writers")
# The limit of partitions of one request that are read before the thread serves other clients.
MOST_PARTITIONS_AT_ONCE = 500
# The limit of records in one read, whatever their size.
_MOST_RECORDS = 50_000


class Topics:
    """The topics of a root. `follow` keeps them up to date.

    A separate thread reads the tables. Clients use it in turn, and `poll` comes before all of them.
    """

    def __init__(self, root: str) -> None:
        self._logs = TopicLogs(root)
        self._thread = FairThreadPool(1, "topics")
        self._polls = SingleFlight(self._poll)
        self._scheduled: dict[str, asyncio.Task[None]] = {}
        # The number of changes of each topic, and the futures that wait for the next one.
        self._change_counts: dict[str, int] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def counts(self) -> Mapping[str, int]:
        """Return the number of partitions of each topic; empty without a catalogue."""
        return self._logs.tables.catalogue()

    def find(self, topic: str) -> tuple[int, TopicTable | None] | None:
        """Return a topic's number of partitions and its table; None for an unknown topic.

        The table is None for a topic without one.
        """
        return self._logs.tables.find(topic)

    def read_logs(self, read: Callable[[TopicLogs], T], owner: Owner) -> asyncio.Future[T]:
        """Run `read` in the thread that reads tables, in the turn of the `owner`."""
        return self._thread.run(owner, partial(read, self._logs))

    def change_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of changes of each topic, for `wait_for_change`."""
        return {topic: self._change_counts.get(topic, 0) for topic in topics}

    async def wait_for_change(self, seen: Mapping[str, int], seconds: float) -> bool:
        """Wait until a topic has changed since `seen`; return False after `seconds`.

        Changes of other topics do not end the wait, because a fetch reads all its partitions after
        it.
        """
        if self.change_counts(seen) != seen:
            return True
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for topic in seen:
            self._waiting.setdefault(topic, set()).add(changed)
        try:
            await asyncio.wait_for(changed, seconds)
        except TimeoutError:
            return False
        finally:
            for topic in seen:
                waiting = self._waiting[topic]
                waiting.discard(changed)
                if not waiting:
                    del self._waiting[topic]
        return True

    async def follow(self) -> None:
        """Poll for changes until cancelled, also after a failed poll."""
        await poll_forever(self.poll, _POLL_EVERY_S, log, "the topics")

    async def poll(self) -> None:
        """Poll for changes once. Raises DeltaError, OSError and Failure."""
        await self._polls.result()

    async def _poll(self) -> None:
        self._on_changed(await self.read_logs(TopicLogs.poll, GATEWAY))

    def poll_soon(self, topic: str) -> None:
        """Schedule a poll of one topic, to which this gateway has written."""
        if topic not in self._scheduled:
            self._scheduled[topic] = asyncio.get_running_loop().create_task(self._poll_topic(topic))

    async def _poll_topic(self, topic: str) -> None:
        # A write from now on schedules another poll.
        await asyncio.sleep(0)
        del self._scheduled[topic]
        self._on_changed(await self.read_logs(lambda logs: logs.poll_topic(topic), _WRITERS))

    def _on_changed(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._change_counts[topic] = self._change_counts.get(topic, 0) + 1
            for changed in self._waiting.get(topic, ()):
                if not changed.done():
                    changed.set_result(None)

    async def close(self) -> None:
        """Cancel the polls, and end the thread."""
        await self._polls.close()
        for poll in self._scheduled.values():
            poll.cancel()
        self._thread.close()


# --- used in the thread ---------------------------------------------------------------------------


class Bounds(NamedTuple):
    """The first offset of a partition, and its end offset, which the next record will get."""

    start: int
    end: int


class TopicLogs:
    """The logs of all topics of a root, for one thread."""

    def __init__(self, root: str) -> None:
        self.tables = TableTopics(root)
        self.poll()

    def poll(self) -> list[str]:
        """Poll for new topics and rows; return the topics that changed since the last poll."""
        self.tables.poll()
        return self.tables.changed()

    def refresh(self, topic: str) -> None:
        """Poll a topic for records that other processes wrote. Raises Failure if that fails."""
        self.tables.refresh(topic)

    def poll_topic(self, topic: str) -> list[str]:
        """Poll one topic for records; return the changed topics, as `poll` does.

        A failure is ignored, because the next `poll` reports it.
        """
        with suppress(Failure):
            self.tables.refresh(topic)
        return self.tables.changed()

    def bounds(self, topic: str, partition: int) -> Bounds:
        """Return a partition's first and end offset.

        Raises UnknownTopicOrPartition and TableReplaced.
        """
        if self._has_table(topic, partition):
            return Bounds(
                self.tables.log_start(topic, partition), self.tables.log_end(topic, partition)
            )
        return Bounds(0, 0)

    def offset_for_time(
        self, topic: str, partition: int, timestamp_ms: int
    ) -> tuple[int, int] | None:
        """Return the first offset with this timestamp or a later one, and its timestamp, ms.

        Return None if there is no such record. Raises UnknownTopicOrPartition and TableReplaced.
        Raises another Failure, or OSError, if the table cannot be read.
        """
        if self._has_table(topic, partition):
            return self.tables.offset_for_time(topic, partition, timestamp_ms)
        return None

    def offset_of_max_timestamp(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the first offset with the latest timestamp, and that timestamp, ms.

        Return None if there are no records. Raises the errors of `offset_for_time`.
        """
        if self._has_table(topic, partition):
            return self.tables.offset_of_max_timestamp(topic, partition)
        return None

    def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Sequence[Record]:
        """Return records from an offset on: at least one if there is any, whatever its size.

        Raises UnknownTopicOrPartition, OffsetOutOfRange and TableReplaced. Raises another Failure,
        or OSError, if the table cannot be read.
        """
        if self._has_table(topic, partition):
            return self.tables.read(topic, partition, offset, max_bytes, _MOST_RECORDS)
        if offset != 0:
            raise OffsetOutOfRange(f"topic {topic!r} has no records, so no offset {offset}")
        return []

    def _has_table(self, topic: str, partition: int) -> bool:
        if not 0 <= partition < self.tables.catalogue().get(topic, 0):
            raise UnknownTopicOrPartition(f"there is no {topic}-{partition}")
        return topic in self.tables.topics()
