"""How long to wait before the next attempt (KIP-580)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

BASE = 2
JITTER = 0.2

# A number in [0, 1); the caller's randomness.
Jitter = Callable[[], float]


class Retrying(Protocol):
    """Settings of a client that tries again."""

    @property
    def retry_backoff_ms(self) -> int:
        """The first pause, ms."""
        ...

    @property
    def retry_backoff_max_ms(self) -> int:
        """The longest pause, ms."""
        ...


class Backoff:
    """retry.backoff.ms, doubled by every attempt up to retry.backoff.max.ms, spread by 20%."""

    def __init__(self, settings: Retrying, jitter: Jitter) -> None:
        self._first_ms = min(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._max_ms = settings.retry_backoff_max_ms
        self._jitter = jitter

    def __call__(self, attempts: int) -> int:
        """The pause after a failed attempt, ms; `attempts` failed before that one."""
        # 2**31 ms is over any maximum that the setting can hold.
        grown = self._first_ms * BASE ** min(attempts, 31)
        spread = 1 - JITTER + 2 * JITTER * self._jitter()
        return min(int(min(grown, self._max_ms) * spread), self._max_ms)
