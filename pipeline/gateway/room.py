"""Limits of requests in flight and of request memory. Waiting requests are served in FIFO order.

Only requests of more than `gateway_settings.FREE_BYTES` take memory of the pool. So a heartbeat
never waits for large requests of other clients, nor for clients that send one slowly. A client
address has at most a share of the memory, so that it cannot block all others. Responses that
clients have not read yet take memory of the same pool (`HeldAnswer`). All methods are for the tasks
of one event loop, except `charge` and `left`, which are thread-safe.

Source: Apache Kafka, queued.max.requests; SimpleMemoryPool and queued.max.request.bytes (KIP-72).
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Room:
    """A pool of the size `limit`. A request for more than that is granted when nothing is taken."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = Lock()
        self._used = 0
        # The waiting callbacks with their sizes; a dict, because many clients may withdraw at once.
        self._wishes: OrderedDict[Callable[[], None], int] = OrderedDict()

    def take(self, size: int, granted: Callable[[], None]) -> bool:
        """Take `size`, which must be given back; return False if the caller must wait for it.

        In that case, `granted` is called once the size is taken. A caller that stops waiting must
        call `withdraw`.
        """
        if self._wishes or not self._fits(size):
            self._wishes[granted] = size
            return False
        self.charge(size)
        return True

    @property
    def left(self) -> int:
        """The size that is left; negative if more was charged than the limit."""
        return self.limit - self._used

    def charge(self, size: int) -> None:
        """Take `size` at once, even beyond the limit. Thread-safe."""
        with self._lock:
            self._used += size

    def withdraw(self, granted: Callable[[], None]) -> None:
        """Stop waiting."""
        del self._wishes[granted]
        self._grant()

    def give_back(self, size: int) -> None:
        """Release `size`, and grant waiting requests."""
        self.charge(-size)
        if self._wishes:
            self._grant()

    def _fits(self, size: int) -> bool:
        return not self._used or self._used + size <= self.limit

    def _grant(self) -> None:
        while self._wishes:
            granted, size = next(iter(self._wishes.items()))
            if not self._fits(size):
                return
            del self._wishes[granted]
            self.charge(size)
            granted()


class Share:
    """A quota of `limit` in a room for one client address, with the methods of `Room`.

    A client that exceeds its per-address quota does not block clients of other addresses.
    """

    def __init__(self, room: Room, limit: int) -> None:
        self._room = room
        self._own = Room(limit)
        # The callbacks that wait for the quota, with the callback that the quota calls instead.
        self._in_own: dict[Callable[[], None], Callable[[], None]] = {}

    def take(self, size: int, granted: Callable[[], None]) -> bool:
        """Take `size`, as `Room.take` does."""
        shared = partial(self._share_granted, size, granted)
        if self._own.take(size, shared):
            return self._room.take(size, granted)
        self._in_own[granted] = shared
        return False

    @property
    def left(self) -> int:
        """The size that is left in the quota and in the whole room."""
        return min(self._own.left, self._room.left)

    def charge(self, size: int) -> None:
        """Take `size` at once, even beyond the limits. Thread-safe."""
        self._room.charge(size)
        self._own.charge(size)

    def withdraw(self, size: int, granted: Callable[[], None]) -> None:
        """Stop waiting for `size`."""
        shared = self._in_own.pop(granted, None)
        if shared is None:
            self._room.withdraw(granted)
            self._own.give_back(size)
        else:
            self._own.withdraw(shared)

    def give_back(self, size: int) -> None:
        """Release `size`, and grant waiting requests."""
        self._room.give_back(size)
        self._own.give_back(size)

    def _share_granted(self, size: int, granted: Callable[[], None]) -> None:
        del self._in_own[granted]
        if self._room.take(size, granted):
            granted()


class HeldAnswer:
    """The memory of a connection's response, from the read of its records until it is sent."""

    def __init__(self, memory: Share) -> None:
        self._memory = memory
        self._lock = Lock()
        self._is_closed = False
        self.size = 0

    @property
    def left(self) -> int:
        """The memory that is left for the connection, bytes."""
        return self._memory.left

    def charge(self, size: int) -> None:
        """Count bytes of a response; ignored after `close`. Thread-safe."""
        with self._lock:
            if not self._is_closed:
                self.size += size
                self._memory.charge(size)

    def shrink(self, size: int = 0) -> None:
        """Set the counted bytes to `size`, and release or charge the difference."""
        with self._lock:
            if self._is_closed:
                return
            more, self.size = size - self.size, size
        if more:
            # A waiting request may start within this call, so the lock must be free.
            self._memory.give_back(-more)

    def close(self) -> None:
        """Release all bytes, and ignore later charges."""
        self.shrink()
        with self._lock:
            self._is_closed = True
            left, self.size = self.size, 0
        self._memory.give_back(left)
