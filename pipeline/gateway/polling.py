"""Reads of tables for many callers: periodic polls, and computations that callers share."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta import STORE_FAILS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
# The limit of the pause after a computation, s. A long computation mostly waits for the store.
_MOST_PAUSE_S = 1.0


async def poll_forever(
    poll: Callable[[], Awaitable[None]], every_s: float, on_failure: Callable[[Exception], None]
) -> None:
    """Call `poll` every `every_s` seconds until cancelled, also after a failure.

    `on_failure` is called with a failure, unless it repeats the last one.
    """
    reported = None
    while True:
        await asyncio.sleep(every_s)
        try:
            await poll()
            reported = None
        except STORE_FAILS as error:
            if reported != str(error):
                on_failure(error)
            reported = str(error)


class SharedResult(Generic[T]):
    """The result of work that many callers wait for, for one event loop.

    One caller resumes in each iteration of the loop, so that the responses to all callers do not
    delay other requests.
    """

    def __init__(self, work: Awaitable[T]) -> None:
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
            # Retrieve the error even if no caller is left: asyncio logs errors that are not.
            work.exception()
        self._resume_next()

    def _resume_next(self) -> None:
        while self._callers:
            caller = self._callers.popleft()
            if not caller.done():
                caller.set_result(None)
                self._work.get_loop().call_soon(self._resume_next)
                return


class SingleFlight(Generic[T]):
    """A computation that callers share, for one event loop.

    A caller gets the result of a computation that begins after its call, because a running one may
    have read old data. At most one computation runs, and at most one waits for it. After a
    computation, there is a pause of `pause` times its duration, at most `_MOST_PAUSE_S`.
    """

    def __init__(self, compute: Callable[[], Awaitable[T]], pause: float = 0.0) -> None:
        self._compute = compute
        self._pause = pause
        self._paused_until = 0.0
        self._one_at_a_time = asyncio.Lock()
        # The computation that has not begun, and all that have not ended.
        self._next: SharedResult[T] | None = None
        self._running: set[SharedResult[T]] = set()

    async def result(self) -> T:
        """Return the result of a computation that begins after this call, or raise its error."""
        if self._next is None or self._next.is_done:
            self._running = {each for each in self._running if not each.is_done}
            self._next = SharedResult(self._run())
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
