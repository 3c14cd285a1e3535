"""The topics that a gateway shows, read and watched beside the event loop."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from group_coordinator.pipeline.gateway.looking import keep_looking
from group_coordinator.pipeline.gateway.topic_logs import TopicLogs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from group_coordinator.schemas.rows import TopicTable

log = logging.getLogger(__name__)

T = TypeVar("T")
# How often new rows are looked for, s: they are seen so much later at most.
_LOOK_EVERY_S = 0.1


class Topics:
    """The topics of a root. `follow` keeps them up to date; `news` counts what it found.

    Tables are read in one thread of their own: the loop serves everybody else meanwhile.
    """

    def __init__(self, root: str) -> None:
        self._logs = TopicLogs(root)
        self._thread = ThreadPoolExecutor(1, "topics")
        self._changed = asyncio.Condition()
        self._looking: dict[str, asyncio.Task[None]] = {}
        self.news = 0

    def counts(self) -> Mapping[str, int]:
        """Each topic's number of partitions; none where there is no catalogue."""
        return self._logs.counts

    def definition(self, topic: str) -> TopicTable | None:
        """What a topic is made of; None for one without a table."""
        return self._logs.definition(topic)

    def with_logs(self, read: Callable[[TopicLogs], T]) -> Awaitable[T]:
        """Read in the thread that reads tables."""
        return asyncio.get_running_loop().run_in_executor(self._thread, read, self._logs)

    async def wait_for_news(self, seen: int, seconds: float) -> None:
        """Return once there is more than there was when `news` was `seen`, or after so long."""

        async def changed() -> None:
            async with self._changed:
                await self._changed.wait_for(lambda: self.news != seen)

        try:
            await asyncio.wait_for(changed(), seconds)
        except TimeoutError:
            return

    async def follow(self) -> None:
        """Look for changes until cancelled. A look that fails is made again."""
        await keep_looking(
            self.look,
            _LOOK_EVERY_S,
            lambda error: log.warning("the topics cannot be read: %s", error),
        )

    async def look(self) -> None:
        """Look for changes once. Raises DeltaError, OSError and Failure."""
        if await self.with_logs(TopicLogs.poll):
            await self._tell()

    def look_soon(self, topic: str) -> None:
        """Look for new records of one topic, which was written to through this gateway."""
        if topic not in self._looking:
            self._looking[topic] = asyncio.get_running_loop().create_task(self._look_at(topic))

    async def _look_at(self, topic: str) -> None:
        # What is written from now on is another look's.
        await asyncio.sleep(0)
        del self._looking[topic]
        if await self.with_logs(lambda logs: logs.refresh(topic)):
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self.news += 1
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread, and the looks that have not begun."""
        for look in self._looking.values():
            look.cancel()
        self._thread.shutdown()
