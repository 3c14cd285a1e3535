"""The exponential backoff between attempts, with jitter (KIP-580)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

BASE = 2
JITTER = 0.2

# Returns a random number in [0, 1). Injected, so that the consumer stays pure.
Jitter = Callable[[], float]


class RetrySettings(Protocol):
    """The retry settings of a client."""

    @property
    def retry_backoff_ms(self) -> int:
        """The first backoff, ms."""
        ...

    @property
    def retry_backoff_max_ms(self) -> int:
        """The longest backoff, ms."""
        ...


class ExponentialBackoff:
    """A backoff that starts at retry.backoff.ms and doubles up to retry.backoff.max.ms.

    Each value has a jitter of 20% up or down, and never exceeds the maximum.
    """

    def __init__(self, settings: RetrySettings, jitter: Jitter) -> None:
        self._first_ms = min(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._max_ms = settings.retry_backoff_max_ms
        self._jitter = jitter

    def __call__(self, attempts: int) -> int:
        """Return the backoff (ms) before the next attempt, after 1 + `attempts` failures."""
        # The doubling stops at 2**31: more would exceed the maximum, which is at most 2**31 - 1 ms
        # for a consumer. A record producer's settings are 64-bit, and there the cap is a limit.
        grown = self._first_ms * BASE ** min(attempts, 31)
        spread = 1 - JITTER + 2 * JITTER * self._jitter()
        return min(int(min(grown, self._max_ms) * spread), self._max_ms)
