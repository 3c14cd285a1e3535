"""The time of a group while its coordinator's clock is earlier than the newest time in its log.

A group's time never decreases. At a take-over it continues from the newest time in the group's log,
and runs 10% slower than the clock until the clock has caught up.

The reason: the new owner's clock may be earlier than that of the previous owner, and would date new
answers before earlier ones. A third owner would then search the wrong minute for recent requests,
and decide a repeated one again. Also, a request with a deadline by the first owner's clock would be
decided minutes too late.
"""

from __future__ import annotations

from msgspec import Struct

# The most that a log may be ahead of the clock, ms. A log that is further ahead is ignored: after
# one clock that was a day ahead, all later times would be ahead for ten days.
MOST_BEHIND_MS = 300_000
# While the clock advances by _PARTS, the group's time advances by _PARTS - 1.
_PARTS = 10


class LogTime(Struct, frozen=True, array_like=True):
    """A group's time, which was `newest` when the clock was `since`; both in ms."""

    newest: int
    since: int

    def at(self, clock_ms: int) -> int:
        """Return the group's time at clock time `clock_ms`."""
        passed = (clock_ms - self.since) * (_PARTS - 1) // _PARTS
        return max(clock_ms, self.newest + passed)

    def clock_at(self, time_ms: int) -> int:
        """Return the clock time at which the group's time reaches `time_ms`."""
        passed = -(-(time_ms - self.newest) * _PARTS // (_PARTS - 1))
        return min(time_ms, self.since + passed)


def log_time(newest: int, clock_ms: int) -> LogTime | None:
    """Return the group's time from now on, None if the clock itself can be used."""
    return LogTime(newest, clock_ms) if 0 < newest - clock_ms <= MOST_BEHIND_MS else None
