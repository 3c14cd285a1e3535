"""When the stream must look at its timers: only when one may be due.

Spark looks at timers in a batch, and a batch costs about as much for nothing as for a few requests.
So the source begins a batch without requests only when a timer is due. Spark does not tell when
that is; the groups do: each group whose timer a batch has set puts out the time (`wake_at`), and
the driver keeps those times (`TimerLooks`).

What is promised: a timer is looked at less than one resolution (`trigger.interval.ms`) after it is
due, as if there were a look every resolution. It holds because

1. every timer in the state is a tick of `TimerLooks` that no batch has reached, or was set before
   this run of the query began. A batch drops the ticks up to its own time, and Spark calls every
   group whose timer is due by that time: what such a group sets next is told by the same batch.
   A tick stays although a later batch has set its group's timer anew: it costs a batch in which
   nothing is due, and never a look that comes too late;
2. a tick is its time rounded up to the resolution, so by less than one;
3. timers that were set before this run began are due within `HORIZON_MS` of that, because no timer
   is set further ahead: until a batch has reached that time there is a look every resolution.

The memory is bounded by `HORIZON_MS`: at most as many ticks as resolutions in it, however many
groups there are and however far their deadlines. A group whose deadline is further away is called
in between, finds nothing due, and tells its next time.

All times are the batches' own, by the driver's wall clock, as Spark's timers are. The source looks
again after `trigger.max.interval.ms` by its monotonic clock whatever it was told: that is what
bounds the wait for timers that are no ticks, which a streaming checkpoint of an earlier release or
a clock set back between two runs may have.
"""

from __future__ import annotations

import heapq
from zlib import crc32

# The furthest that a timer is set ahead, ms. For so long there is a look every resolution after a
# restart on a streaming checkpoint.
HORIZON_MS = 1_800_000
# Groups that are called only because of the horizon are called at multiples of this, ms: else a few
# thousand idle groups would make every resolution a tick.
_SPREAD_MS = 10_000
# No timer is set.
NEVER_MS = 2**63 - 1


def wake_at(group_id: str | None, deadline: int, now: int) -> int:
    """When a batch shall call a group whose deadline this is, absolute ms; not before `now` + 2.

    Spark calls a group in the first batch whose time is greater than the group's timer, and a timer
    is at least 1 ms ahead. A deadline in the further half of the horizon, or behind it, is awaited
    in steps of half a horizon to a whole one. A group's id decides which, so that groups that were
    loaded together are not called together for ever.
    """
    half = HORIZON_MS // 2
    if deadline - now <= half:
        return max(deadline, now + 2)
    step = half + crc32((group_id or "").encode("utf-8", "surrogatepass")) % half
    return min(deadline, (now + step) // _SPREAD_MS * _SPREAD_MS)


class TimerLooks:
    """The ticks at which some timer may be due; times in ms.

    `unknown_until` says up to when timers may be due that no batch of this run has told; 0 if the
    state began empty.
    """

    def __init__(self, resolution_ms: int, unknown_until: int = 0) -> None:
        self._resolution_ms = resolution_ms
        self._unknown_until = unknown_until
        self._ticks: set[int] = set()
        self._earliest: list[int] = []

    def told(self, wake_ms: int) -> None:
        """A batch has set a group's timer to be due at this time."""
        tick = -(-wake_ms // self._resolution_ms) * self._resolution_ms
        if tick not in self._ticks:
            self._ticks.add(tick)
            heapq.heappush(self._earliest, tick)

    def looked(self, batch_ms: int) -> None:
        """A batch of this time has looked at all timers."""
        while self._earliest and self._earliest[0] <= batch_ms:
            self._ticks.remove(heapq.heappop(self._earliest))
        if self._unknown_until <= batch_ms:
            self._unknown_until = 0

    def next_ms(self) -> int:
        """When to look next: 0 for every resolution, `NEVER_MS` if no timer is set."""
        if self._unknown_until:
            return 0
        return self._earliest[0] if self._earliest else NEVER_MS

    def __len__(self) -> int:
        """How many ticks are kept."""
        return len(self._ticks)
