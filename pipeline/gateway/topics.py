"""The topics of a gateway, read and polled in a thread outside the event loop."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from group_coordinator.pipeline.gateway.fair_threads import GATEWAY, FairThreads, Owner
from group_coordinator.pipeline.gateway.looking import keep_looking
from group_coordinator.pipeline.gateway.single_flight import SingleFlight
from group_coordinator.pipeline.gateway.topic_logs import TopicLogs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from group_coordinator.schemas.rows import TopicTable

log = logging.getLogger(__name__)

T = TypeVar("T")
# The time between two polls for new rows, s.
_LOOK_EVERY_S = 0.1
# The owner of polls of topics that clients wrote to. They take turns with reads of clients.
_WRITERS = Owner("", "writers")
# The limit of partitions of one request that are read before the thread serves other clients.
MOST_AT_ONCE = 500


class Topics:
    """The topics of a root. `follow` keeps them up to date.

    A separate thread reads the tables, so that the event loop serves other clients meanwhile.
    Clients use it in turn, and `look` comes before all of them.
    """

    def __init__(self, root: str) -> None:
        self._logs = TopicLogs(root)
        self._thread = FairThreads(1, "topics")
        self._looks = SingleFlight(self._look)
        self._looking: dict[str, asyncio.Task[None]] = {}
        # The number of changes of each topic, and the futures that wait for the next one.
        self._news: dict[str, int] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def counts(self) -> Mapping[str, int]:
        """Return the number of partitions of each topic; empty without a catalogue."""
        return self._logs.counts

    def find(self, topic: str) -> tuple[int, TopicTable | None] | None:
        """Return a topic's number of partitions and its table, at one time.

        Return None for an unknown topic. The table is None for a topic without one.
        """
        return self._logs.find(topic)

    def with_logs(self, read: Callable[[TopicLogs], T], owner: Owner) -> asyncio.Future[T]:
        """Run `read` in the thread that reads tables, in the turn of the `owner`."""
        return self._thread.run(owner, partial(read, self._logs))

    def news(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of changes of each topic, for `wait_for_news`."""
        return {topic: self._news.get(topic, 0) for topic in topics}

    async def wait_for_news(self, seen: Mapping[str, int], seconds: float) -> bool:
        """Wait until a topic has changed since `seen`; return False after `seconds`.

        Changes of other topics do not end the wait, because a fetch reads all its partitions after
        it.
        """
        if self.news(seen) != seen:
            return True
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for topic in seen:
            self._waiting.setdefault(topic, set()).add(news)
        try:
            await asyncio.wait_for(news, seconds)
        except TimeoutError:
            return False
        finally:
            for topic in seen:
                waiting = self._waiting[topic]
                waiting.discard(news)
                if not waiting:
                    del self._waiting[topic]
        return True

    async def follow(self) -> None:
        """Poll for changes until cancelled, also after a failed poll."""
        await keep_looking(
            self.look,
            _LOOK_EVERY_S,
            lambda error: log.warning("the topics cannot be read: %s", error),
        )

    async def look(self) -> None:
        """Poll for changes once. Raises DeltaError, OSError and Failure."""
        await self._looks.result()

    async def _look(self) -> None:
        self._tell(await self.with_logs(TopicLogs.poll, GATEWAY))

    def look_soon(self, topic: str) -> None:
        """Schedule a poll of one topic, to which this gateway has written."""
        if topic not in self._looking:
            self._looking[topic] = asyncio.get_running_loop().create_task(self._look_at(topic))

    async def _look_at(self, topic: str) -> None:
        # A write from now on schedules another poll.
        await asyncio.sleep(0)
        del self._looking[topic]
        self._tell(await self.with_logs(lambda logs: logs.look_at(topic), _WRITERS))

    def _tell(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._news[topic] = self._news.get(topic, 0) + 1
            for news in self._waiting.get(topic, ()):
                if not news.done():
                    news.set_result(None)

    async def close(self) -> None:
        """Cancel the polls, and end the thread."""
        await self._looks.close()
        for look in self._looking.values():
            look.cancel()
        self._thread.close()
