"""Room for requests: those that find none wait for it, first come, first served.

A gateway has room for so many requests in flight, and for so many bytes of large ones. Only
requests of more than `FREE_BYTES` take room in memory. So a heartbeat never waits for the large
requests of others, nor for those who send one slowly. For the tasks of one event loop.

Source: Apache Kafka, queued.max.requests; SimpleMemoryPool and queued.max.request.bytes (KIP-72).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FREE_BYTES = 65_536


class Room:
    """Room of the size `limit`; whoever needs more than that has all of it alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
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
        return not self._used or self._used + size <= self._limit

    def _grant(self) -> None:
        while self._wishes:
            granted, size = next(iter(self._wishes.items()))
            if not self._fits(size):
                return
            del self._wishes[granted]
            self._used += size
            granted()
