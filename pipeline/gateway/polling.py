"""Reads of tables for many callers: periodic polls, and computations that callers share."""

from __future__ import annotations

import asyncio
from contextlib import suppress
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
        self._next: asyncio.Task[T] | None = None
        self._tasks: set[asyncio.Task[T]] = set()

    async def result(self) -> T:
        """Return the result of a computation that begins after this call, or raise its error."""
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_task(self._run())
            self._tasks.add(self._next)
            self._next.add_done_callback(self._tasks.discard)
        # A cancelled caller must not cancel the computation for the others.
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        """Cancel the computations, and wait for their end."""
        for task in list(self._tasks):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

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
