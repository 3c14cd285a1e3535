"""One computation for all who ask for it at once.

Whoever asks is answered from a computation that begins afterwards: one that is under way may have
read what has changed since. So at most one is under way, and one waits for it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from group_coordinator.pipeline.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
# A computation that lasts long mostly waits for a store.
_MOST_REST_S = 1.0


class SingleFlight(Generic[T]):
    """Computes once for all who ask before it begins. For the tasks of one loop.

    After a computation there is none for `rest` times as long as it took, `_MOST_REST_S` at most.
    """

    def __init__(self, compute: Callable[[], Awaitable[T]], rest: float = 0.0) -> None:
        self._compute = compute
        self._rest = rest
        self._rests_until = 0.0
        self._one_at_a_time = asyncio.Lock()
        # The computation that has not begun, and all that are not over.
        self._next: asyncio.Task[T] | None = None
        self._tasks: set[asyncio.Task[T]] = set()

    async def result(self) -> T:
        """Return what a computation finds that begins from now on. Raises what it raises."""
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_task(self._run())
            self._tasks.add(self._next)
            self._next.add_done_callback(self._tasks.discard)
        # Who gives up waiting does not end it for the others.
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        """End what is under way."""
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
