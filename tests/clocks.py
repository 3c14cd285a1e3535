"""Clocks that differ from the machine's."""

from __future__ import annotations

import time


class AheadClocks:
    """The machine's clocks, set forward by a number of seconds that a test chooses."""

    def __init__(self, wall_s: float = 0.0, monotonic_s: float = 0.0) -> None:
        self.wall_ahead_s, self.monotonic_ahead_s = wall_s, monotonic_s

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000 + round(1_000 * self.wall_ahead_s)

    def monotonic_s(self) -> float:
        return time.monotonic() + self.monotonic_ahead_s

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
