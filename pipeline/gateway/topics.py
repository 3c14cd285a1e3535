"""The topics that a gateway shows: those of the catalogue, as they change, and their records."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from deltalake.exceptions import DeltaError

from pipeline.gateway.topic_logs import EmptyLog
from pipeline.tables.topic_watcher import TopicWatcher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pipeline.gateway.topic_logs import TopicLog

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
_LOOK_EVERY_S = 1.0


class Topics:
    """The topics of a root's catalogue; `follow` keeps them up to date.

    `news` counts the looks that found something new. Tables are read in one thread of their own.
    """

    def __init__(self, root: str) -> None:
        self._watcher = TopicWatcher(root)
        self._watcher.poll()
        self._thread = ThreadPoolExecutor(1, "topics")
        self._empty = EmptyLog()
        self._changed = asyncio.Condition()
        self.news = 0

    def counts(self) -> Mapping[str, int]:
        """Each topic's number of partitions; none where there is no catalogue."""
        return self._watcher.counts or {}

    def log(self, topic: str, partition: int) -> TopicLog | None:
        """The log of a topic that has this partition, None if there is none."""
        return self._empty if 0 <= partition < self.counts().get(topic, 0) else None

    def in_thread(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]:
        """Call a function in the thread that reads tables."""
        assert not kwargs
        return asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    async def wait_for_news(self, seen: int, seconds: float) -> None:
        """Return once there is more than there was when `news` was `seen`, or after so long."""

        async def changed() -> None:
            async with self._changed:
                await self._changed.wait_for(lambda: self.news != seen)

        try:
            await asyncio.wait_for(changed(), seconds)
        except asyncio.TimeoutError:
            return

    async def follow(self) -> None:
        """Look for changes every second, until cancelled. A look that fails is made again."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                found = await self.in_thread(self._watcher.poll)
            except (DeltaError, OSError) as error:
                log.warning("the topics cannot be read: %s", error)
                continue
            if found is not None:
                async with self._changed:
                    self.news += 1
                    self._changed.notify_all()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()
