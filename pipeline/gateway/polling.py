"""Reads of tables for many callers: polls, computations that callers share, and the groups."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.monitor.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

T = TypeVar("T")
# The limit of the pause after a computation, s. A long computation mostly waits for the store.
_MOST_PAUSE_S = 1.0


async def poll_forever(
    poll: Callable[[], Awaitable[None]], every_s: float, log: logging.Logger, what: str
) -> None:
    """Call `poll` every `every_s` seconds until cancelled, also after a failure.

    A failure is logged, unless it repeats the last one: `what` cannot be read.
    """
    reported = None
    while True:
        await asyncio.sleep(every_s)
        try:
            await poll()
            reported = None
        except STORE_FAILS as error:
            if reported != str(error):
                log.warning("%s cannot be read: %s", what, error)
            reported = str(error)


class SharedResult(Generic[T]):
    """The result of work that many callers wait for, for one event loop.

    The callers resume one after the other, so that the responses to all of them do not delay other
    requests: `interval_s` apart, or for 0 in successive iterations of the loop.
    """

    def __init__(self, work: Awaitable[T], interval_s: float = 0.0) -> None:
        self._interval_s = interval_s
        self._callers: deque[asyncio.Future[None]] = deque()
        self._work = asyncio.ensure_future(work)
        self._work.add_done_callback(self._on_done)

    @property
    def is_done(self) -> bool:
        """Whether the work has ended."""
        return self._work.done()

    @property
    def is_cancelled(self) -> bool:
        """Whether the work was cancelled, so that it has no result."""
        return self._work.cancelled()

    async def get(self) -> T:
        """Return the result, or raise the error of the work."""
        if not self._work.done():
            caller: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._callers.append(caller)
            await caller
        return self._work.result()

    def cancel(self) -> asyncio.Future[T]:
        """Cancel the work, and return it, which may not have ended yet."""
        self._work.cancel()
        return self._work

    def _on_done(self, work: asyncio.Future[T]) -> None:
        if not work.cancelled():
            # Without this, asyncio logs the error if no caller is left that retrieves it.
            work.exception()
        self._resume_next()

    def _resume_next(self) -> None:
        while self._callers:
            caller = self._callers.popleft()
            if not caller.done():
                caller.set_result(None)
                self._work.get_loop().call_later(self._interval_s, self._resume_next)
                return


class SingleFlight(Generic[T]):
    """A computation that callers share, for one event loop.

    A caller gets the result of a computation that begins after its call, because a running one may
    have read old data. At most one computation runs, and at most one waits for it. After a
    computation, there is a pause of `pause` times its duration, at most `_MOST_PAUSE_S`. Its
    callers resume `interval_s` apart.
    """

    def __init__(
        self, compute: Callable[[], Awaitable[T]], pause: float = 0.0, interval_s: float = 0.0
    ) -> None:
        self._compute = compute
        self._pause = pause
        self._interval_s = interval_s
        self._paused_until = 0.0
        self._one_at_a_time = asyncio.Lock()
        # The computation that has not begun, and all that have not ended.
        self._next: SharedResult[T] | None = None
        self._running: set[SharedResult[T]] = set()

    async def result(self) -> T:
        """Return the result of a computation that begins after this call, or raise its error."""
        if self._next is None or self._next.is_done:
            self._running = {each for each in self._running if not each.is_done}
            self._next = SharedResult(self._run(), self._interval_s)
            self._running.add(self._next)
        return await self._next.get()

    async def close(self) -> None:
        """Cancel the computations, and wait for their end."""
        if works := [computation.cancel() for computation in self._running]:
            await asyncio.wait(works)

    async def _run(self) -> T:
        async with self._one_at_a_time:
            await asyncio.sleep(max(0.0, self._paused_until - monotonic()))
            self._next = None
            began = monotonic()
            try:
                return await self._compute()
            finally:
                ended = monotonic()
                self._paused_until = ended + min(_MOST_PAUSE_S, self._pause * (ended - began))


# --- the groups of a root -------------------------------------------------------------------------

_GROUPS = """
SELECT group_id, protocol_type, state, if(kind = 'Classic', 'classic', 'unknown') AS type
FROM groups ORDER BY group_id
"""
# The pause after a read, as a multiple of its duration. Continuous requests keep the thread busy
# for a quarter of the time, or more if reads are so long that `SingleFlight` cuts the pause.
_PAUSE = 3.0
# The time between the responses to two callers, s. A response may be long, so without it the
# responses to many callers would take a whole core for a while.
INTERVAL_S = 0.002


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
        self._reads = SingleFlight(self._in_thread, _PAUSE, INTERVAL_S)

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
    # More threads would take the cores from the event loop and from other processes.
    with closing(Catalog(root, threads=1)) as catalog:
        return GroupListing([GroupEntry(*row) for row in catalog.query(_GROUPS).rows])
