"""One computation that is shared by all callers that need its result at the same time.

A caller gets the result of a computation that begins after its call, because a running one may have
read old data. At most one computation runs, and at most one waits for it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from group_coordinator.pipeline.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
# The limit of the pause after a computation, s. A long computation mostly waits for the store.
_MOST_REST_S = 1.0


class SingleFlight(Generic[T]):
    """A computation that runs once for all calls before its start. For the tasks of one loop.

    After a computation, there is a pause of `rest` times its duration, at most `_MOST_REST_S`.
    """

    def __init__(self, compute: Callable[[], Awaitable[T]], rest: float = 0.0) -> None:
        self._compute = compute
        self._rest = rest
        self._rests_until = 0.0
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
            await asyncio.sleep(max(0.0, self._rests_until - monotonic()))
            self._next = None
            began = monotonic()
            try:
                return await self._compute()
            finally:
                ended = monotonic()
                self._rests_until = ended + min(_MOST_REST_S, self._rest * (ended - began))
