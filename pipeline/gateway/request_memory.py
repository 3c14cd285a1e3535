"""The memory of large requests: those that find no room wait in their sockets, first come, first.

Only requests of more than `FREE_BYTES` take room. So a heartbeat never waits for the large requests
of others, nor for those who send one slowly. For the tasks of one event loop.

Source: Apache Kafka, SimpleMemoryPool and queued.max.request.bytes (KIP-72).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

FREE_BYTES = 65_536


class _Wish(NamedTuple):
    size: int
    granted: Callable[[], None]


class RequestMemory:
    """Room for `limit` bytes; a single request that is larger has all of it for itself."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._wishes: deque[_Wish] = deque()

    def take(self, size: int, granted: Callable[[], None]) -> bool:
        """Take room, which is to be given back; False if there is none yet.

        Then `granted` is called as soon as the room is taken. Whoever no longer waits for that
        must `withdraw`.
        """
        if self._wishes or not self._fits(size):
            self._wishes.append(_Wish(size, granted))
            return False
        self._used += size
        return True

    def withdraw(self, granted: Callable[[], None]) -> None:
        """Give up waiting."""
        self._wishes = deque(each for each in self._wishes if each.granted != granted)
        self._grant()

    def give_back(self, size: int) -> None:
        """Give room back."""
        self._used -= size
        self._grant()

    def _fits(self, size: int) -> bool:
        return not self._used or self._used + size <= self._limit

    def _grant(self) -> None:
        while self._wishes and self._fits(self._wishes[0].size):
            wish = self._wishes.popleft()
            self._used += wish.size
            wish.granted()
