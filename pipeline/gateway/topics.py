"""The topics that a gateway shows, read and watched beside the event loop."""

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
# How often new rows are looked for, s: they are seen so much later at most.
_LOOK_EVERY_S = 0.1
# Looks at topics that clients have written to take turns with clients' reads.
_WRITERS = Owner("", "writers")
# The thread reads at most so many partitions of one request before it reads for others.
MOST_AT_ONCE = 500


class Topics:
    """The topics of a root. `follow` keeps them up to date.

    Tables are read in one thread of their own: the loop serves everybody else meanwhile. Clients
    have it in turn, and `look` before all of them.
    """

    def __init__(self, root: str) -> None:
        self._logs = TopicLogs(root)
        self._thread = FairThreads(1, "topics")
        self._looks = SingleFlight(self._look)
        self._looking: dict[str, asyncio.Task[None]] = {}
        # Of each topic how often it changed, and who waits for that.
        self._news: dict[str, int] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def counts(self) -> Mapping[str, int]:
        """Each topic's number of partitions; none where there is no catalogue."""
        return self._logs.counts

    def find(self, topic: str) -> tuple[int, TopicTable | None] | None:
        """A topic's number of partitions and what it is made of, at one time; None without it.

        The second is None for a topic without a table.
        """
        return self._logs.find(topic)

    def with_logs(self, read: Callable[[TopicLogs], T], owner: Owner) -> asyncio.Future[T]:
        """Read in the thread that reads tables, in the turn of the `owner`."""
        return self._thread.run(owner, partial(read, self._logs))

    def news(self, topics: Iterable[str]) -> dict[str, int]:
        """How often each of the topics has changed, for `wait_for_news`."""
        return {topic: self._news.get(topic, 0) for topic in topics}

    async def wait_for_news(self, seen: Mapping[str, int], seconds: float) -> bool:
        """Wait until one of the topics has changed since its news were `seen`; False after so long.

        News of another topic wake nobody: each wakened fetch reads all its partitions.
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
        """Look for changes until cancelled. A look that fails is made again."""
        await keep_looking(
            self.look,
            _LOOK_EVERY_S,
            lambda error: log.warning("the topics cannot be read: %s", error),
        )

    async def look(self) -> None:
        """Look for changes once. Raises DeltaError, OSError and Failure."""
        await self._looks.result()

    async def _look(self) -> None:
        self._tell(await self.with_logs(TopicLogs.poll, GATEWAY))

    def look_soon(self, topic: str) -> None:
        """Look for new records of one topic, which was written to through this gateway."""
        if topic not in self._looking:
            self._looking[topic] = asyncio.get_running_loop().create_task(self._look_at(topic))

    async def _look_at(self, topic: str) -> None:
        # What is written from now on is another look's.
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
        """End the thread, and the looks that have not begun."""
        await self._looks.close()
        for look in self._looking.values():
            look.cancel()
        self._thread.close()
