"""Schedule of batches for timers: such a batch begins only when a timer may be due.

Spark checks timers in a batch, and a batch costs about as much for nothing as for a few requests.
So the source begins a batch without requests only when a timer is due. Spark does not report when
that is, but the groups do. Each group with a timer that a batch has set outputs its time
(`wake_at`), and the driver keeps those times (`TimerSchedule`).

A timer is checked less than one resolution (`trigger.interval.ms`) after it is due, as if a batch
began every resolution. This holds because

1. every timer in the state is a tick of `TimerSchedule` that no batch has reached, or an unknown
   timer from before this run. A batch drops the ticks up to its own time. Spark calls every group
   with a timer that is due by that time, and the same batch reports the next timer of such a group;
2. a tick is its time rounded up to the resolution, so by less than one;
3. timers from before this run are known if the previous run was stopped cleanly
   (`ticks_to_text`). Otherwise they are due within `HORIZON_MS` of the beginning,
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
  same ticks (`pipeline.stream.spark_engine`), that batch is run again before any other one. It has
  the state before it, and the same time and settings, so each group reports the same again.
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

A run that is stopped cleanly stores its ticks for the next run on its checkpoint (`ticks_to_text`).
They are a text in the streaming checkpoint, which is deleted, moved and lost with the checkpoint.
The text names the batch after which the state has these timers. It is used only if that batch is
the newest that the streaming checkpoint has planned:

* The state is then the one after that batch, or the batch is run again. In that case it runs on the
  state before it, and every group with a timer that it sets reports the time again. All other
  timers are in the text.
* A run that is killed, or that fails, writes no text. It has planned a batch after the text of an
  earlier run, or it has changed nothing.
* A truncated text is not valid JSON.

Ticks are rounded up to the resolution, so a run with another resolution ignores the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.stream.wake_file import WakeFile
from group_coordinator.schemas.decoding import DECODE_ERRORS

if TYPE_CHECKING:
    from group_coordinator.coordinator.group.batch import GroupOutput
    from group_coordinator.pipeline.stream.offset import Planned


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


class TimerSchedule:
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

    def set_timer(self, wake_ms: int | None, timer: bytes | None = None) -> None:
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

    def drop_reached(self, batch_ms: int) -> None:
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


# The name of the text in a streaming checkpoint with the ticks of the run; Spark ignores it.
TIMERS_FILE = "timer-looks"


class _StoredTicks(Struct, frozen=True, forbid_unknown_fields=True):
    """The state of `TimerSchedule` after a batch; times in ms."""

    batch_id: int
    resolution_ms: int
    unknown_until: int
    ticks: tuple[int, ...]


_decode = msgspec.json.Decoder(_StoredTicks).decode


def ticks_to_text(schedule: TimerSchedule, batch_id: int) -> str:
    """Return the text that stores the ticks after a batch."""
    stored = _StoredTicks(
        batch_id, schedule.resolution_ms, schedule.unknown_until, schedule.ticks()
    )
    return msgspec.json.encode(stored).decode()


def restored_schedule(
    planned: Planned | None, text: str | None, resolution_ms: int, now: int
) -> TimerSchedule:
    """Return the ticks of a run that begins at `now`, ms, by the wall clock.

    `planned` is the newest batch that its streaming checkpoint has planned. `text` is the text
    stored in the checkpoint, None if there is none.
    """
    if planned is None:
        return TimerSchedule(resolution_ms)
    try:
        stored = None if text is None else _decode(text)
    except DECODE_ERRORS:
        stored = None
    if stored is None or (stored.batch_id, stored.resolution_ms) != (
        planned.batch_id,
        resolution_ms,
    ):
        return TimerSchedule(resolution_ms, now + HORIZON_MS)
    schedule = TimerSchedule(resolution_ms, stored.unknown_until)
    for tick in stored.ticks:
        # The text does not say which group a tick is for, so each tick stays until a batch reaches
        # it.
        schedule.set_timer(tick)
    return schedule


class TimerWatch:
    """The driver's part of the schedule: it observes the outputs of one query's batches.

    It tells the source, by the wake file, when the next timer may be due.

    `time_of_batch` returns the time of a planned batch, ms, from Spark's log of offsets. It is
    called for batches in which no group had an output. Only a batch's own time says which timers
    Spark has checked, because clocks may be set back at any moment. `store` stores a text in the
    streaming checkpoint (`ticks_to_text`).
    """

    def __init__(
        self,
        schedule: TimerSchedule,
        time_of_batch: Callable[[int], int],
        store: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._schedule = schedule
        self._time_of_batch = time_of_batch
        self._store = store
        self._batch_ms: int | None = None
        # The last batch, once its outputs are written.
        self._ended: int | None = None
        self._file = WakeFile.create()

    @property
    def path(self) -> str:
        """The path of the wake file, which the source opens."""
        return str(self._file.path)

    def watch(self, outputs: Iterable[GroupOutput]) -> Iterator[GroupOutput]:
        """Yield a batch's outputs, and record when their groups must be called."""
        self._batch_ms = self._ended = None
        for output in outputs:
            if output.batch_ms is not None:
                self._batch_ms = output.batch_ms
            self._schedule.set_timer(output.wake_ms, output.timer)
            yield output

    def ended(self, batch_id: int) -> None:
        """Record that the watched batch is written; tell the source when the next one is due."""
        batch_ms = self._batch_ms
        self._schedule.drop_reached(self._time_of_batch(batch_id) if batch_ms is None else batch_ms)
        self._ended = batch_id
        self._file.due_ms = self._schedule.next_ms()
        if self._file.is_open:
            self._file.delete()

    def wake(self) -> None:
        """Make a batch begin at once."""
        self._file.wake()

    def stopped(self) -> None:
        """Store the ticks: the query was stopped, and its checkpoint gets no further batch."""
        if self._ended is not None:
            self._store(ticks_to_text(self._schedule, self._ended))

    def end(self) -> None:
        """Delete the wake file after the query has ended."""
        self._file.delete()
