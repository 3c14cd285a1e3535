"""Room for requests: those that find none wait for it, first come, first served.

A gateway has room for so many requests in flight, and for so many bytes of large ones. Only
requests of more than `gateway_settings.FREE_BYTES` take room in memory. So a heartbeat never waits
for the large requests of others, nor for those who send one slowly. One client address has a share
of the room at most, so it cannot have all others wait. Answers that clients have not read yet take
room of the same kind (`HeldAnswer`). For the tasks of one event loop, but for `charge` and `left`.

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
    """Room of the size `limit`; whoever needs more than that has all of it alone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = Lock()
        self._used = 0
        # Who waits, and for how much. A thousand clients may give up waiting at once.
        self._wishes: OrderedDict[Callable[[], None], int] = OrderedDict()

    def take(self, size: int, granted: Callable[[], None]) -> bool:
        """Take room, which is to be given back; False if there is none yet.

        Then `granted` is called as soon as the room is taken. Whoever no longer waits for that
        must `withdraw`.
        """
        if self._wishes or not self._fits(size):
            self._wishes[granted] = size
            return False
        self.charge(size)
        return True

    @property
    def left(self) -> int:
        """How much room is left; below zero if more was charged than there is."""
        return self.limit - self._used

    def charge(self, size: int) -> None:
        """Take room at once, however much is left; for any thread."""
        with self._lock:
            self._used += size

    def withdraw(self, granted: Callable[[], None]) -> None:
        """Give up waiting."""
        del self._wishes[granted]
        self._grant()

    def give_back(self, size: int) -> None:
        """Give room back."""
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
    """The part `limit` of a room that one client address may have; it has what `Room` has.

    Who waits for the others of its own address stands in nobody else's way.
    """

    def __init__(self, room: Room, limit: int) -> None:
        self._room = room
        self._own = Room(limit)
        # Who waits for the share, and how the share is told.
        self._in_own: dict[Callable[[], None], Callable[[], None]] = {}

    def take(self, size: int, granted: Callable[[], None]) -> bool:
        """Take room, as `Room.take` does."""
        shared = partial(self._share_granted, size, granted)
        if self._own.take(size, shared):
            return self._room.take(size, granted)
        self._in_own[granted] = shared
        return False

    @property
    def left(self) -> int:
        """How much room is left, in the share and in the whole room."""
        return min(self._own.left, self._room.left)

    def charge(self, size: int) -> None:
        """Take room at once, however much is left; for any thread."""
        self._room.charge(size)
        self._own.charge(size)

    def withdraw(self, size: int, granted: Callable[[], None]) -> None:
        """Give up waiting for so much."""
        shared = self._in_own.pop(granted, None)
        if shared is None:
            self._room.withdraw(granted)
            self._own.give_back(size)
        else:
            self._own.withdraw(shared)

    def give_back(self, size: int) -> None:
        """Give room back."""
        self._room.give_back(size)
        self._own.give_back(size)

    def _share_granted(self, size: int, granted: Callable[[], None]) -> None:
        del self._in_own[granted]
        if self._room.take(size, granted):
            granted()


class HeldAnswer:
    """The memory of a connection's answer, from the reading of its records until it is written."""

    def __init__(self, memory: Share) -> None:
        self._memory = memory
        self._lock = Lock()
        self._is_closed = False
        self.size = 0

    @property
    def left(self) -> int:
        """How much memory is left for the connection, bytes."""
        return self._memory.left

    def charge(self, size: int) -> None:
        """Count bytes of an answer; for any thread. They are not counted after `close`."""
        with self._lock:
            if not self._is_closed:
                self.size += size
                self._memory.charge(size)

    def shrink(self, size: int = 0) -> None:
        """Give back all but `size`, which are counted anew if there were fewer."""
        with self._lock:
            if self._is_closed:
                return
            more, self.size = size - self.size, size
        if more:
            # Who waits for room may go on at once, so no lock is held here.
            self._memory.give_back(-more)

    def close(self) -> None:
        """Give all back, and count nothing any more."""
        self.shrink()
        with self._lock:
            self._is_closed = True
            left, self.size = self.size, 0
        self._memory.give_back(left)
