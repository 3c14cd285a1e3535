"""When a batch begins for timers: only when a timer may be due.

Spark looks at timers in a batch, and a batch costs about as much for nothing as for a few requests.
So the source begins a batch without requests only when a timer is due. Spark does not tell when
that is, but the groups do: each group whose timer a batch has set puts out the time (`wake_at`),
and the driver keeps those times (`TimerLooks`).

A timer is looked at less than one resolution (`trigger.interval.ms`) after it is due, as if there
were a look every resolution. This holds because

1. every timer in the state is a tick of `TimerLooks` that no batch has reached, or was set before
   this run of the query began and is not known. A batch drops the ticks up to its own time, and
   Spark calls every group whose timer is due by that time: what such a group sets next is told by
   the same batch;
2. a tick is its time rounded up to the resolution, so by less than one;
3. timers that were set before this run began are known if the run before was stopped in order
   (`pipeline.stream.kept_looks`). Else they are due within `HORIZON_MS` of the beginning, because
   no timer is set further ahead: until a batch has reached that time there is a look every
   resolution.

A group has one timer, so a tick is dropped as soon as every group that waited for it has told
another time, or that it has no timer any more. That breaks 1 only if a group tells what is not in
the state afterwards. It does not:

* A group tells, by a digest of its id, what its call has made of its timer, and nothing if the call
  has left the timer alone. At most one call of a batch sets or removes a group's timer, for Spark
  calls a group once for all its rows, and once more only if its timer is due still.
* A batch that fails ends the run, and the run's ticks with it. Where a query begins anew with the
  same ticks (`pipeline.stream.serving`), that batch is run again before any other one, on the state
  before it and by the same time and settings: each group tells again what it told.
* Ticks are the state's own times. A clock that is set back or forward changes neither, and drops
  nothing but what a batch of that time has looked at.
* A group of which nothing is known, and one that is not told apart from others (`MOST_GROUPS`),
  drops no tick. A tick too many costs a batch in which nothing is due.

The memory is bounded. At most `MOST_GROUPS` groups are told apart. There are as many ticks as
resolutions in `HORIZON_MS` at most, however many groups there are and however far their deadlines.
A group whose deadline is further away is called in between, finds nothing due, and tells its next
time.

All times are the batches' own, by the driver's wall clock, as Spark's timers are. The source looks
again after `trigger.max.interval.ms` by its monotonic clock whatever it was told: that is what
bounds the wait for timers that are no ticks, which a streaming checkpoint of an earlier release or
a clock set back between two runs may have.
"""

from __future__ import annotations

from hashlib import blake2b
from zlib import crc32

# The furthest that a timer is set ahead, ms. For so long there is a look every resolution after a
# restart on the streaming checkpoint of a run that was not stopped in order.
HORIZON_MS = 1_800_000
# Groups that are called only because of the horizon are called at multiples of this, ms: else a few
# thousand idle groups would make every resolution a tick.
_SPREAD_MS = 10_000
# No timer is set.
NEVER_MS = 2**63 - 1
# So many groups are told apart, which bounds the memory for them. The ticks of further groups stay
# until a batch reaches them: so many groups with members have a batch for their heartbeats at every
# tick anyway, and without members they share a tick every `_SPREAD_MS`.
MOST_GROUPS = 100_000
# Nobody finds two ids with one digest: else one group could have the other's tick dropped.
_DIGEST_BYTES = 16


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


def timer_of(group_id: str) -> bytes:
    """A digest that stands for a group in its output, of one length for every id."""
    text = group_id.encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=_DIGEST_BYTES).digest()


class _Tick:
    """A time at which a look is due, and how many groups wait for it; 0 after the last has left.

    A batch that reaches the time drops the object. A group that is kept as waiting for it takes
    nothing from a later tick of the same time, which the clock may bring if it is set back.
    """

    __slots__ = ("at", "waiting")

    def __init__(self, at: int) -> None:
        self.at = at
        self.waiting = 0


class TimerLooks:
    """The ticks at which some timer may be due; times in ms.

    `unknown_until` says up to when timers may be due that are not known; 0 if there are none.
    `most_groups` are told apart.
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
        """A batch has set a group's timer to be due at this time, or removed it: None.

        `timer` is the group's (`timer_of`); None: nobody's, and no group's tick is dropped.
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
        """A group waits no longer for its tick."""
        tick = self._tick_of.pop(timer, None)
        if tick is None:
            return
        tick.waiting -= 1
        if not tick.waiting and self._ticks.get(tick.at) is tick:
            del self._ticks[tick.at]

    def looked(self, batch_ms: int) -> None:
        """A batch of this time has looked at all timers."""
        for at in [each for each in self._ticks if each <= batch_ms]:
            del self._ticks[at]
        if self.unknown_until <= batch_ms:
            self.unknown_until = 0

    def next_ms(self) -> int:
        """When to look next: 0 for every resolution, `NEVER_MS` if no timer is set."""
        return 0 if self.unknown_until else min(self._ticks, default=NEVER_MS)

    def ticks(self) -> tuple[int, ...]:
        """The ticks that no batch has reached."""
        return tuple(self._ticks)

    def __len__(self) -> int:
        """How many ticks are kept."""
        return len(self._ticks)
