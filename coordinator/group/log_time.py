"""The time that a group is decided by where its coordinator's clock is behind the group's log.

A partition's next owner may have a clock that is behind that of the one before. By that clock alone
what it answers would come before what was answered: the owner after it would look for the requests
of the last minute in the wrong minute, and decide one of them again; and a request that was to be
decided by some time of the first owner's clock would be taken minutes after it. So the group's time
goes on from the newest time that its log tells, a tenth slower than the clock, which so catches up.
"""

from __future__ import annotations

from msgspec import Struct

# By how much a log may be ahead of the clock, ms. From further ahead no time goes on: a clock that
# was a day ahead once would keep all others there for ten.
MOST_BEHIND_MS = 300_000
# While the clock goes on by _PARTS, the group's time goes on by one less.
_PARTS = 10


class LogTime(Struct, frozen=True, array_like=True):
    """At `since` by the clock it was `newest` by the group's time; both ms."""

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
