"""The groups of a root, read once for all clients that ask for them at once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from group_coordinator.pipeline.gateway.single_flight import SingleFlight
from group_coordinator.pipeline.monitor.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Hashable

_GROUPS = """
SELECT group_id, protocol_type, state, if(kind = 'Classic', 'classic', 'unknown') AS type
FROM groups ORDER BY group_id
"""
# Clients that ask without end have the groups read for a quarter of the time.
_REST = 3.0


class GroupEntry(NamedTuple):
    """A group; `type` is classic or unknown."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class Listing:
    """The groups at a time, and what was made of them: an answer by what it depends on."""

    def __init__(self, groups: list[GroupEntry]) -> None:
        self.groups = groups
        self.answers: dict[Hashable, asyncio.Future[bytes]] = {}


class GroupListings:
    """Reads the groups of a root in a thread of its own. For the tasks of one loop."""

    def __init__(self, root: str) -> None:
        self._thread = ThreadPoolExecutor(1, "groups")
        self._read = partial(_read, root)
        self._reads = SingleFlight(self._in_thread, _REST)

    async def read(self) -> Listing:
        """Return the groups as they are from now on. Raises DeltaError, OSError and Failure."""
        return await self._reads.result()

    async def close(self) -> None:
        """End the thread."""
        await self._reads.close()
        self._thread.shutdown()

    async def _in_thread(self) -> Listing:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read)


def _read(root: str) -> Listing:
    with closing(Catalog(root)) as catalog:
        return Listing([GroupEntry(*row) for row in catalog.query(_GROUPS).rows])
