"""Room for requests: those that find none wait for it, first come, first served.

A gateway has room for so many requests in flight, and for so many bytes of large ones. Only
requests of more than `gateway_settings.FREE_BYTES` take room in memory. So a heartbeat never waits
for the large requests of others, nor for those who send one slowly. One client address has a share
of the room at most, so it cannot have all others wait. For the tasks of one event loop.

Source: Apache Kafka, queued.max.requests; SimpleMemoryPool and queued.max.request.bytes (KIP-72).
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Room:
    """Room of the size `limit`; whoever needs more than that has all of it alone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
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
        self._used += size
        return True

    def withdraw(self, granted: Callable[[], None]) -> None:
        """Give up waiting."""
        del self._wishes[granted]
        self._grant()

    def give_back(self, size: int) -> None:
        """Give room back."""
        self._used -= size
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
            self._used += size
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
