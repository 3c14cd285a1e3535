"""The wall clock, the monotonic clock and sleeping, for all code that a simulation may run.

A simulation replaces the machine's clocks (`use`). Spark, gateways' connections, and the handling
of processes and signals use them directly.
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
        """Return the time of day in ms since 1970-01-01 UTC; it may be set back."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds since an arbitrary time; never set back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Sleep for a number of seconds."""
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
    """Return the time of day in ms since 1970-01-01 UTC."""
    return _clock.wall_ms()


def monotonic() -> float:
    """Return seconds of a clock that is never set back."""
    return _clock.monotonic_s()


def monotonic_ms() -> float:
    """Return milliseconds of a clock that is never set back."""
    return monotonic() * 1000


def sleep(seconds: float) -> None:
    """Sleep for a number of seconds."""
    _clock.sleep(seconds)


def back_off(attempt: int) -> None:
    """Sleep a random time below a limit: 2 ms, doubled with each attempt, at most 250 ms."""
    sleep(random.uniform(0, min(0.25, 0.002 * 2**attempt)))


# Linux stops CLOCK_MONOTONIC while the machine sleeps. macOS does not, and has no CLOCK_BOOTTIME.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot_ms() -> int:
    """Return ms of a clock that is never set back and that runs while the machine sleeps."""
    return time.clock_gettime_ns(_SINCE_BOOT) // 1_000_000


class Freshness:
    """The time since something was seen: the longer of the times by two clocks.

    The monotonic clock stops while a machine is suspended, and the wall clock may be set.
    """

    def __init__(self) -> None:
        self._seen: tuple[float, int] | None = None

    @classmethod
    def seen_now(cls) -> Freshness:
        """Create the freshness of something that is seen now."""
        made = cls()
        made.renew(cls.now())
        return made

    def renew(self, at: tuple[float, int]) -> None:
        """Note that it was seen at a time returned by `now`."""
        self._seen = at

    @staticmethod
    def now() -> tuple[float, int]:
        """Return the time of both clocks: monotonic in s, wall in ms."""
        return _clock.monotonic_s(), _clock.wall_ms()

    def is_within(self, seconds: float) -> bool:
        """Return whether the last `renew` is at most `seconds` old, by both clocks."""
        if self._seen is None:
            return False
        (steady, wall_ms), (seen, seen_ms) = self.now(), self._seen
        return max(steady - seen, abs(wall_ms - seen_ms) / 1000) < seconds


@contextmanager
def use(clock: Clock) -> Iterator[None]:
    """Use another clock within the block."""
    global _clock
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before
