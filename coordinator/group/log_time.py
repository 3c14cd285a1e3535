"""The time that a group is decided by where its coordinator's clock is behind the group's log.

A group's time never runs back. At a take-over it goes on from the newest time that the group's log
tells, and runs a tenth slower than the clock until the clock has caught up.

The clock of a partition's next owner may be behind that of the owner before. Dated by that clock
alone, the next owner's answers would come before earlier ones. The owner after it would then look
for the requests of the last minute in the wrong minute, and decide a repeated one again. And a
request with a deadline by the first owner's clock would be decided minutes after that deadline.
"""

from __future__ import annotations

from msgspec import Struct

# By how much a log may be ahead of the clock, ms. From further ahead no time goes on: a clock that
# was a day ahead once would keep all others there for ten.
MOST_BEHIND_MS = 300_000
# While the clock goes on by _PARTS, the group's time goes on by one less.
_PARTS = 10


class LogTime(Struct, frozen=True, array_like=True):
    """A group's time: it was `newest` when the clock said `since`; both in ms."""

    newest: int
    since: int

    def at(self, clock_ms: int) -> int:
        """The group's time when the clock says `clock_ms`."""
        passed = (clock_ms - self.since) * (_PARTS - 1) // _PARTS
        return max(clock_ms, self.newest + passed)

    def clock_at(self, time_ms: int) -> int:
        """What the clock says when the group's time comes to `time_ms`."""
        passed = -(-(time_ms - self.newest) * _PARTS // (_PARTS - 1))
        return min(time_ms, self.since + passed)


def log_time(newest: int, clock_ms: int) -> LogTime | None:
    """The time to decide by from now on; None for the clock's own."""
    return LogTime(newest, clock_ms) if 0 < newest - clock_ms <= MOST_BEHIND_MS else None
