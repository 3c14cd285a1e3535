"""Limits of requests in flight and of request memory. Waiting requests are served in FIFO order.

Only requests of more than `gateway_settings.FREE_BYTES` take memory of the pool, so a heartbeat
never waits for it. A client address has a quota of the memory, so that it cannot block the clients
of all other addresses. Responses that clients have not read yet take memory of the same pool
(`ResponseMemory`).

Call the methods only in tasks of one event loop, except `charge` and `available`, which are
thread-safe. Source: Apache Kafka, queued.max.requests; SimpleMemoryPool and
queued.max.request.bytes (KIP-72).
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class MemoryPool:
    """A pool of `limit` bytes, or of `limit` requests in flight.

    A request for more than the limit is granted when nothing is in use.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = Lock()
        self._used = 0
        # The waiting callbacks with their sizes; a dict, because many clients may withdraw at once.
        self._waiting: OrderedDict[Callable[[], None], int] = OrderedDict()

    def try_acquire(self, size: int, on_acquired: Callable[[], None]) -> bool:
        """Take `size` and return True, or return False and call `on_acquired` once it is taken.

        The caller must `release` the size, or call `withdraw` to stop waiting.
        """
        if self._waiting or not self._fits(size):
            self._waiting[on_acquired] = size
            return False
        self.charge(size)
        return True

    @property
    def available(self) -> int:
        """The size that is available; negative if more than the limit was charged."""
        return self.limit - self._used

    def charge(self, size: int) -> None:
        """Take `size` at once, even beyond the limit. Thread-safe."""
        with self._lock:
            self._used += size

    def withdraw(self, on_acquired: Callable[[], None]) -> None:
        """Stop waiting for a size that `try_acquire` did not take."""
        del self._waiting[on_acquired]
        self._grant()

    def release(self, size: int) -> None:
        """Release `size`, and grant waiting requests."""
        self.charge(-size)
        if self._waiting:
            self._grant()

    def _fits(self, size: int) -> bool:
        return not self._used or self._used + size <= self.limit

    def _grant(self) -> None:
        while self._waiting:
            on_acquired, size = next(iter(self._waiting.items()))
            if not self._fits(size):
                return
            del self._waiting[on_acquired]
            self.charge(size)
            on_acquired()


class AddressQuota:
    """The quota of one client address: `limit` bytes of a pool, with the methods of `MemoryPool`.

    A client that exceeds its per-address quota does not block clients of other addresses.
    """

    def __init__(self, pool: MemoryPool, limit: int) -> None:
        self._pool = pool
        self._quota = MemoryPool(limit)
        # The callbacks that wait for the quota, with the callback that the quota calls instead.
        self._waiting_for_quota: dict[Callable[[], None], Callable[[], None]] = {}

    def try_acquire(self, size: int, on_acquired: Callable[[], None]) -> bool:
        """Take `size`, as `MemoryPool.try_acquire` does."""
        on_quota = partial(self._take_of_pool, size, on_acquired)
        if self._quota.try_acquire(size, on_quota):
            return self._pool.try_acquire(size, on_acquired)
        self._waiting_for_quota[on_acquired] = on_quota
        return False

    @property
    def available(self) -> int:
        """The size that is available in the quota and in the whole pool."""
        return min(self._quota.available, self._pool.available)

    def charge(self, size: int) -> None:
        """Take `size` at once, even beyond the limits. Thread-safe."""
        self._pool.charge(size)
        self._quota.charge(size)

    def withdraw(self, size: int, on_acquired: Callable[[], None]) -> None:
        """Stop waiting for `size`, which `try_acquire` did not take."""
        on_quota = self._waiting_for_quota.pop(on_acquired, None)
        if on_quota is None:
            self._pool.withdraw(on_acquired)
            self._quota.release(size)
        else:
            self._quota.withdraw(on_quota)

    def release(self, size: int) -> None:
        """Release `size`, and grant waiting requests."""
        self._pool.release(size)
        self._quota.release(size)

    def _take_of_pool(self, size: int, on_acquired: Callable[[], None]) -> None:
        del self._waiting_for_quota[on_acquired]
        if self._pool.try_acquire(size, on_acquired):
            on_acquired()


class ResponseMemory:
    """The memory of a connection's responses, from the read of records until they are sent."""

    def __init__(self, memory: AddressQuota) -> None:
        self._memory = memory
        self._lock = Lock()
        self._is_closed = False
        self.size = 0

    @property
    def available(self) -> int:
        """The memory that is available to the connection, bytes."""
        return self._memory.available

    def charge(self, size: int) -> None:
        """Count bytes of a response; ignored after `close`. Thread-safe."""
        with self._lock:
            if not self._is_closed:
                self.size += size
                self._memory.charge(size)

    def resize(self, size: int = 0) -> None:
        """Set the counted bytes to `size`, and release or charge the difference."""
        with self._lock:
            if self._is_closed:
                return
            added, self.size = size - self.size, size
        if added:
            # A waiting request may start within this call, so the lock must be free.
            self._memory.release(-added)

    def close(self) -> None:
        """Release all bytes, and ignore later charges."""
        self.resize()
        with self._lock:
            self._is_closed = True
            counted, self.size = self.size, 0
        self._memory.release(counted)
