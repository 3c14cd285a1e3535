"""A clock that goes on while somebody sleeps, and others who write meanwhile."""

from __future__ import annotations

from collections.abc import Callable


class Clock:
    """Others write at their times, ms, while somebody sleeps; it begins at 0."""

    def __init__(self, writes: dict[int, Callable[[], None]] | None = None) -> None:
        self.writes = {} if writes is None else writes
        self.now_ms = 0.0

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.now_ms += 1000 * seconds
        for at in [each for each in self.writes if each <= self.now_ms]:
            self.writes.pop(at)()
