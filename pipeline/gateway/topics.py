"""The topics that a gateway shows: the catalogue's, as it changes."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from pipeline.tables.topic_watcher import TopicWatcher

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0


class Topics:
    """The topics of a root's catalogue; `follow` keeps them up to date."""

    def __init__(self, root: str) -> None:
        self._watcher = TopicWatcher(root)
        self._watcher.poll()

    def counts(self) -> Mapping[str, int]:
        """Each topic's number of partitions; none where there is no catalogue."""
        return self._watcher.counts or {}

    async def follow(self) -> None:
        """Look for changes every second, until cancelled. A look that fails is made again."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                await asyncio.to_thread(self._watcher.poll)
            except (DeltaError, OSError) as error:
                log.warning("the catalogue of topics cannot be read: %s", error)
