"""Schedule of batches for timers: such a batch begins only when a timer may be due.

Spark checks timers in a batch, and a batch costs about as much for nothing as for a few requests.
So the source begins a batch without requests only when a timer is due. Spark does not report when
that is, but the groups do. Each group with a timer that a batch has set outputs its time
(`wake_at`), and the driver keeps those times (`TimerLooks`).

A timer is checked less than one resolution (`trigger.interval.ms`) after it is due, as if a batch
began every resolution. This holds because

1. every timer in the state is a tick of `TimerLooks` that no batch has reached, or an unknown timer
   from before this run. A batch drops the ticks up to its own time. Spark calls every group with a
   timer that is due by that time, and the same batch reports the next timer of such a group;
2. a tick is its time rounded up to the resolution, so by less than one;
3. timers from before this run are known if the previous run was stopped cleanly
   (`pipeline.stream.kept_looks`). Otherwise they are due within `HORIZON_MS` of the beginning,
   because no timer is set further ahead. Until a batch has reached that time, a batch begins every
   resolution.

A group has one timer. So a tick is dropped as soon as every group that waited for it has reported
another time, or that it has no timer. That breaks 1 only if a group reports a timer that
the state does not have afterwards. This cannot happen:

* A group reports, by a digest of its id, how its call has set or removed its timer. If the call
  has left the timer alone, it reports nothing. At most one call of a batch sets or removes a
  group's timer. Spark calls a group once for all its rows, and once more only if its timer is still
  due.
* A batch that fails ends the run, and the run's ticks with it. If a query is started again with the
  same ticks (`pipeline.stream.serving`), that batch is run again before any other one. It has the
  state before it, and the same time and settings, so each group reports the same again.
* Ticks are the state's own times. A clock that is set back or forward changes neither, and drops
  only ticks that a batch of that time has checked.
* A group without a known tick, and one that is not tracked (`MOST_GROUPS`), drops no tick. A
  superfluous tick costs a batch in which nothing is due.

The memory is bounded. At most `MOST_GROUPS` groups are tracked one by one. There are at most as
many ticks as resolutions in `HORIZON_MS`, for any number of groups and any deadlines. A group with
a deadline further away is called in between, finds nothing due, and reports its next time.

All times are the batches' own, by the driver's wall clock, as Spark's timers are. The source begins
a batch after `trigger.max.interval.ms` by its monotonic clock in any case. That bounds the wait for
timers that are not ticks. They occur in a streaming checkpoint of an earlier release, or if a clock
is set back between two runs.
"""

from __future__ import annotations

from hashlib import blake2b
from zlib import crc32

# The furthest that a timer is set ahead, ms. If the previous run on the streaming checkpoint was
# not stopped cleanly, a batch begins every resolution for this time.
HORIZON_MS = 1_800_000
# Groups that are called only because of the horizon are called at multiples of this, ms. Otherwise
# a few thousand idle groups would make every resolution a tick.
_SPREAD_MS = 10_000
# No timer is set.
NEVER_MS = 2**63 - 1
# The number of groups that are tracked one by one, which bounds the memory for them. The ticks of
# further groups stay until a batch reaches them. So many groups with members have a batch for their
# heartbeats at every tick anyway. Without members, they share a tick every `_SPREAD_MS`.
MOST_GROUPS = 100_000
# Long enough that two ids with one digest cannot be found. Otherwise one group could make the
# driver drop the other's tick.
_DIGEST_BYTES = 16


def wake_at(group_id: str | None, deadline: int, now: int) -> int:
    """Return when a batch must call a group with this deadline, absolute ms; at least `now` + 2.

    Spark calls a group in the first batch with a time greater than the group's timer, and a timer
    is at least 1 ms ahead. A deadline further away than half a horizon is awaited in steps of half
    a horizon to a whole one. A group's id decides the step, so that groups that were loaded
    together are not always called together.
    """
    half = HORIZON_MS // 2
    if deadline - now <= half:
        return max(deadline, now + 2)
    step = half + crc32((group_id or "").encode("utf-8", "surrogatepass")) % half
    return min(deadline, (now + step) // _SPREAD_MS * _SPREAD_MS)


def timer_of(group_id: str) -> bytes:
    """Return a digest that identifies a group in its output, of one length for every id."""
    text = group_id.encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=_DIGEST_BYTES).digest()


class _Tick:
    """A time at which a batch is due, and how many groups wait for it.

    A batch that reaches the time drops the object. If the clock is set back, a later tick may have
    the same time. A group that is recorded with the dropped object does not change that later tick.
    """

    __slots__ = ("at", "waiting")

    def __init__(self, at: int) -> None:
        self.at = at
        self.waiting = 0


class TimerLooks:
    """The ticks at which some timer may be due; times in ms.

    Up to `unknown_until`, timers that are not known may be due; 0 if there are none. At most
    `most_groups` groups are tracked one by one.
    """

    def __init__(
        self, resolution_ms: int, unknown_until: int = 0, most_groups: int = MOST_GROUPS
    ) -> None:
        self.resolution_ms = resolution_ms
        self.unknown_until = unknown_until
        self._most_groups = most_groups
        self._ticks: dict[int, _Tick] = {}
        self._tick_of: dict[bytes, _Tick] = {}

    def told(self, wake_ms: int | None, timer: bytes | None = None) -> None:
        """Record that a batch has set a group's timer to be due at `wake_ms`, or removed it (None).

        `timer` identifies the group (`timer_of`). If it is None, no tick is dropped.
        """
        if timer is not None:
            self._leave(timer)
        if wake_ms is None:
            return
        at = -(-wake_ms // self.resolution_ms) * self.resolution_ms
        tick = self._ticks.setdefault(at, _Tick(at))
        tick.waiting += 1
        if timer is not None and len(self._tick_of) < self._most_groups:
            self._tick_of[timer] = tick

    def _leave(self, timer: bytes) -> None:
        """Remove a group from the tick that it waits for."""
        tick = self._tick_of.pop(timer, None)
        if tick is None:
            return
        tick.waiting -= 1
        if not tick.waiting and self._ticks.get(tick.at) is tick:
            del self._ticks[tick.at]

    def looked(self, batch_ms: int) -> None:
        """Drop the ticks that a batch of this time has reached: it has checked all timers."""
        for at in [each for each in self._ticks if each <= batch_ms]:
            del self._ticks[at]
        if self.unknown_until <= batch_ms:
            self.unknown_until = 0

    def next_ms(self) -> int:
        """Return when the next batch is due: 0 for every resolution, `NEVER_MS` without timers."""
        return 0 if self.unknown_until else min(self._ticks, default=NEVER_MS)

    def ticks(self) -> tuple[int, ...]:
        """Return the ticks that no batch has reached."""
        return tuple(self._ticks)

    def __len__(self) -> int:
        """Return the number of ticks."""
        return len(self._ticks)
