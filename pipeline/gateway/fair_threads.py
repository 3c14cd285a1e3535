"""A thread pool for work of clients, shared fairly by principal and address.

Each client has a queue, and the threads take from the queues round-robin. A client uses at most
half of the threads, so that its long work leaves threads to the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Owner(NamedTuple):
    """The owner of work: all connections of a principal from an address."""

    principal: str
    host: str


# The gateway itself. Its work runs before that of all clients.
GATEWAY = Owner("", "")

_Queue = OrderedDict["asyncio.Future[Any]", "Callable[[], Any]"]


class FairThreadPool:
    """A pool of `count` threads that run the work of owners round-robin, for one event loop."""

    def __init__(self, count: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(count, name)
        self._free = count
        self._most_per_owner = max(1, count // 2)
        self._running = Counter[Owner]()
        # The waiting work by owner, in the order of their turns.
        self._waiting: OrderedDict[Owner, _Queue] = OrderedDict()

    def run(self, owner: Owner, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run the work in a thread. Work that is cancelled while it waits is not run."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, OrderedDict())[done] = work
        if owner is GATEWAY:
            self._waiting.move_to_end(owner, last=False)
        done.add_done_callback(partial(self._withdraw, owner))
        self._begin()
        return done

    def close(self) -> None:
        """Drop the work that waits, and end the threads after the work that runs."""
        self._waiting.clear()
        self._threads.shutdown()

    def _begin(self) -> None:
        while self._free and (owner := self._next()) is not None:
            queue = self._waiting[owner]
            done, work = queue.popitem(last=False)
            if queue:
                self._waiting.move_to_end(owner)
            else:
                del self._waiting[owner]
            self._free -= 1
            self._running[owner] += 1
            running = done.get_loop().run_in_executor(self._threads, work)
            running.add_done_callback(partial(self._end, owner, done))

    def _next(self) -> Owner | None:
        for owner in self._waiting:
            if owner is GATEWAY or self._running[owner] < self._most_per_owner:
                return owner
        return None

    def _end(self, owner: Owner, done: asyncio.Future[Any], found: asyncio.Future[Any]) -> None:
        # The thread is free only now, even if its client disconnected earlier.
        self._free += 1
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]
        if found.cancelled():
            # The event loop is ending.
            done.cancel()
            return
        # Retrieve the error even if no task waits: asyncio logs errors that are never retrieved.
        error = found.exception()
        if not done.done():
            if error is None:
                done.set_result(found.result())
            else:
                done.set_exception(error)
        self._begin()

    def _withdraw(self, owner: Owner, done: asyncio.Future[Any]) -> None:
        queue = self._waiting.get(owner)
        if queue is not None and queue.pop(done, None) is not None and not queue:
            del self._waiting[owner]
