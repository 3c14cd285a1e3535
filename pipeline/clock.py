"""The wall clock, the monotonic clock and waiting: all of `pipeline` has them from here.

Only Spark brings times of its own. A simulation puts clocks of its own in the machine's place
(`use`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Clock(Protocol):
    """A machine's clocks."""

    def wall_ms(self) -> int:
        """The time of day, ms since 1970-01-01 UTC; it may be set back."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some time; never set back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        ...


class _MachineClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


_clock: Clock = _MachineClock()


def clock_ms() -> int:
    """Milliseconds since 1970-01-01 UTC."""
    return _clock.wall_ms()


def monotonic() -> float:
    """Seconds by a clock that is never set back."""
    return _clock.monotonic_s()


def monotonic_ms() -> float:
    """Milliseconds by a clock that is never set back."""
    return monotonic() * 1000


def sleep(seconds: float) -> None:
    """Return after so many seconds."""
    _clock.sleep(seconds)


def back_off(attempt: int) -> None:
    """Sleep a random time below 2 ms, doubled with each attempt, at most 250 ms."""
    sleep(random.uniform(0, min(0.25, 0.002 * 2**attempt)))


# Linux stops CLOCK_MONOTONIC while a machine sleeps, macOS does not and has no other.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot_ms() -> int:
    """Milliseconds by a clock that is never set back, and goes on while the machine sleeps."""
    return time.clock_gettime_ns(_SINCE_BOOT) // 1_000_000


class Freshness:
    """How long ago something was seen, by whichever of two clocks says longer.

    The monotonic clock stands still while a machine is suspended; the other one may be set.
    """

    def __init__(self) -> None:
        self._seen: tuple[float, int] | None = None

    @classmethod
    def of_now(cls) -> Freshness:
        """The freshness of something that is seen at this moment."""
        made = cls()
        made.renew(cls.now())
        return made

    def renew(self, at: tuple[float, int]) -> None:
        """Note that it was seen at a time that `now` had returned."""
        self._seen = at

    @staticmethod
    def now() -> tuple[float, int]:
        """The time by both clocks."""
        return _clock.monotonic_s(), _clock.wall_ms()

    def is_within(self, seconds: float) -> bool:
        """Whether it was seen within so many seconds."""
        if self._seen is None:
            return False
        (steady, wall_ms), (seen, seen_ms) = self.now(), self._seen
        return max(steady - seen, abs(wall_ms - seen_ms) / 1000) < seconds


@contextmanager
def use(clock: Clock) -> Iterator[None]:
    """Have another clock say the time within the block."""
    global _clock
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before
