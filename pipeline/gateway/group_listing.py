"""The groups of a root, read once for all clients that list them at the same time."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from group_coordinator.pipeline.gateway.polling import SharedResult, SingleFlight
from group_coordinator.pipeline.monitor.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Hashable

_GROUPS = """
SELECT group_id, protocol_type, state, if(kind = 'Classic', 'classic', 'unknown') AS type
FROM groups ORDER BY group_id
"""
# The pause after a read, as a multiple of its duration. Continuous requests keep the thread busy
# for a quarter of the time, or more if reads are so long that `SingleFlight` cuts the pause.
_PAUSE = 3.0


class GroupEntry(NamedTuple):
    """A group. `type` is "classic" or "unknown"."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupListing:
    """The groups at one time, with the encoded responses that clients share."""

    def __init__(self, groups: list[GroupEntry]) -> None:
        self.groups = groups
        self.responses: dict[Hashable, SharedResult[bytes]] = {}


class GroupListings:
    """A reader of the groups of a root, in a separate thread, for one event loop."""

    def __init__(self, root: str) -> None:
        self._thread = ThreadPoolExecutor(1, "groups")
        self._read = partial(_read, root)
        self._reads = SingleFlight(self._in_thread, _PAUSE)

    async def read(self) -> GroupListing:
        """Return a listing that is read after this call. Raises DeltaError, OSError and Failure."""
        return await self._reads.result()

    async def close(self) -> None:
        """Cancel the reads, and end the thread."""
        await self._reads.close()
        self._thread.shutdown()

    async def _in_thread(self) -> GroupListing:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read)


def _read(root: str) -> GroupListing:
    with closing(Catalog(root)) as catalog:
        return GroupListing([GroupEntry(*row) for row in catalog.query(_GROUPS).rows])
