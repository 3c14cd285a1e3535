"""Schedule of the batches for timers: such a batch begins only when a timer may be due.

Spark checks timers only in a batch, and an empty batch costs about as much as a small one. Spark
does not report when a timer is due. So each group's output has the time of a timer that the batch
set (`wake_at`), and the driver schedules a batch for it (`TimerSchedule`). A *tick* is such a
scheduled time: the timer's time, rounded up to the resolution (`trigger.interval.ms`).

The time of the next timer alone does not suffice. Once a batch has reached it, the time of the
following timer is unknown, and a batch every resolution takes 0.2 of a core
(`tests/bench/ARCHIVE.md`).

A timer is checked less than one resolution after it is due, as if a batch began every resolution:

1. Every timer in the state has a tick that no batch has reached, or is from before this run. A
   batch drops the ticks up to its own time; Spark calls every group with a timer due by that time,
   and the group reports its next timer in the same batch.
2. A tick is later than its timer by less than one resolution.
3. Timers from before this run are known if the previous run was stopped cleanly (`ticks_to_text`).
   Otherwise they are due within `HORIZON_MS`, and until then a batch begins every resolution.

A tick is dropped early once every group that waits for it has reported another timer or none. The
state then has no timer for it:

* Only a call that sets or removes the timer reports one. Spark calls a group once in a batch for
  all its rows, and again only if its timer is still due.
* A failed batch ends the run and its ticks. A query that is started again with the same ticks
  (`pipeline.stream.spark_engine`) first repeats that batch with the same state, time and settings,
  so each group reports the same timer.
* Ticks are the state's own times, which setting a clock does not change.
* A group that is not tracked (`MOST_GROUPS`) drops no tick. A superfluous tick costs an empty
  batch.

Memory is bounded by `MOST_GROUPS`, and by the number of resolutions in `HORIZON_MS`. A group with a
deadline further away is called in between.

All times are batch times, by the driver's wall clock, as Spark's timers are. The source also begins
a batch after `trigger.max.interval.ms` by its monotonic clock. This bounds the wait for timers
without a tick: those of an earlier release's checkpoint, or after a clock is set back between runs.

A run that is stopped cleanly stores its ticks in the streaming checkpoint. The next run uses the
text only if it names the newest batch that the checkpoint has planned:

* Then the state is the one after that batch, or the batch is repeated on the state before it and
  reports its timers again.
* A run that is killed or fails writes no text. It has planned a later batch than an older text
  names, or it has changed nothing.
* A truncated text is not valid JSON, and a text with another resolution is ignored.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.session.scratch import ScratchFolder
from group_coordinator.schemas.decoding import DECODE_ERRORS

if TYPE_CHECKING:
    from group_coordinator.coordinator.group.batch import GroupOutput
    from group_coordinator.pipeline.stream.offset import Planned

log = logging.getLogger(__name__)

_DUE, _WAKES, _IS_OPEN = range(3)
_SIZE = 3 * 8


class WakeFile:
    """The wake file: shared memory with which the driver makes the source begin a batch.

    Both processes are on one machine and map the file, so the source can read it hundreds of times
    a second. Each of its three numbers has one writer, and is written atomically. The file at
    `path` is in a temporary folder, and is deleted once the source has mapped it. If a coordinator
    is killed before that, a later one deletes the folder.
    """

    def __init__(self, path: Path, folder: ScratchFolder | None = None) -> None:
        self.path = path
        self._folder = folder
        with path.open("r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), _SIZE)).cast("q")

    @classmethod
    def create(cls) -> WakeFile:
        """Create the file of one query. Raises OSError."""
        folder = ScratchFolder()
        path = folder.path / "wake"
        path.write_bytes(bytes(_SIZE))
        return cls(path, folder)

    @classmethod
    def open(cls, path: str) -> WakeFile | None:
        """Open the driver's file; on failure, log a warning and return None."""
        try:
            found = cls(Path(path))
        # ValueError: the file is too short.
        except (OSError, ValueError) as error:
            log.warning(
                "timers are checked every trigger.interval.ms, because %s cannot be opened: %s",
                path,
                error,
            )
            return None
        found._numbers[_IS_OPEN] = 1
        return found

    @property
    def due_ms(self) -> int:
        """The earliest time at which a timer may be due, ms by the wall clock; 0 at first."""
        return self._numbers[_DUE]

    @due_ms.setter
    def due_ms(self, value: int) -> None:
        self._numbers[_DUE] = value

    @property
    def wakes(self) -> int:
        """The number of times that the driver has woken the source."""
        return self._numbers[_WAKES]

    def wake(self) -> None:
        """Make the source begin a batch at once, unless a batch begins anyway."""
        self._numbers[_WAKES] += 1

    @property
    def is_open(self) -> bool:
        """Whether the source has opened the file."""
        return bool(self._numbers[_IS_OPEN])

    def delete(self) -> None:
        """Delete the file if this object created it. Processes that have mapped it keep it."""
        if self._folder is not None:
            self._folder.delete()


# The furthest that a timer is set ahead, ms. After an unclean stop, a batch begins every resolution
# for this time.
HORIZON_MS = 1_800_000
# Groups with a deadline beyond the horizon are called at multiples of this, ms. Otherwise a few
# thousand idle groups would make every resolution a tick.
_SPREAD_MS = 10_000
# The time of the next batch if no timer is set.
NEVER_MS = 2**63 - 1
# The most groups that are tracked one by one, which bounds memory. The ticks of further groups stay
# until a batch reaches them. So many groups with members send heartbeats, and so have a batch, at
# every tick anyway; groups without members share a tick every `_SPREAD_MS`.
MOST_GROUPS = 100_000
# So long that two ids with one digest cannot be found, with which one group could make the driver
# drop the other's tick.
_DIGEST_BYTES = 16


def wake_at(group_id: str | None, deadline: int, now: int) -> int:
    """Return when a batch must call a group with this deadline, absolute ms; at least `now` + 2.

    Spark needs a timer at least 1 ms ahead. A deadline further away than half of `HORIZON_MS` is
    approached in steps of a half to a whole horizon, by the group's id, so that groups loaded
    together are not all called together.
    """
    half = HORIZON_MS // 2
    if deadline - now <= half:
        return max(deadline, now + 2)
    step = half + crc32((group_id or "").encode("utf-8", "surrogatepass")) % half
    return min(deadline, (now + step) // _SPREAD_MS * _SPREAD_MS)


def timer_of(group_id: str) -> bytes:
    """Return a digest of a group's id, 16 bytes, which identifies the group in its output."""
    text = group_id.encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=_DIGEST_BYTES).digest()


class _Tick:
    """A time at which a batch is due, and the number of groups with a timer then.

    After a clock is set back, a later tick may have the same time; a group's reference to the
    earlier one does not change it.
    """

    __slots__ = ("at", "waiting")

    def __init__(self, at: int) -> None:
        self.at = at
        self.waiting = 0


class TimerSchedule:
    """The ticks: times, ms, at which a batch must begin because a timer may be due.

    They are multiples of `resolution_ms`. Until `unknown_until`, timers that are not known may be
    due; 0 if there are none. At most `most_groups` groups are tracked one by one.
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
        """Record that a batch has set a group's timer to `wake_ms`, or removed it (None).

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
        tick = self._tick_of.pop(timer, None)
        if tick is None:
            return
        tick.waiting -= 1
        if not tick.waiting and self._ticks.get(tick.at) is tick:
            del self._ticks[tick.at]

    def drop_reached(self, batch_ms: int) -> None:
        """Drop the ticks up to `batch_ms`, the time of a batch, which has checked their timers."""
        for at in [each for each in self._ticks if each <= batch_ms]:
            del self._ticks[at]
        if self.unknown_until <= batch_ms:
            self.unknown_until = 0

    def next_ms(self) -> int:
        """Return when the next batch is due, ms; 0: every resolution; `NEVER_MS`: no timer."""
        return 0 if self.unknown_until else min(self._ticks, default=NEVER_MS)

    def ticks(self) -> tuple[int, ...]:
        """Return the times of the batches that are still to begin, ms."""
        return tuple(self._ticks)

    def __len__(self) -> int:
        """Return the number of ticks."""
        return len(self._ticks)


# The file of the ticks in a streaming checkpoint; Spark ignores it.
TIMERS_FILE = "timer-looks"


class _StoredTicks(Struct, frozen=True, forbid_unknown_fields=True):
    batch_id: int
    resolution_ms: int
    unknown_until: int
    ticks: tuple[int, ...]


_decode = msgspec.json.Decoder(_StoredTicks).decode


def ticks_to_text(schedule: TimerSchedule, batch_id: int) -> str:
    """Return the text that stores the scheduled times after a batch."""
    stored = _StoredTicks(
        batch_id, schedule.resolution_ms, schedule.unknown_until, schedule.ticks()
    )
    return msgspec.json.encode(stored).decode()


def restored_schedule(
    planned: Planned | None, text: str | None, resolution_ms: int, now: int
) -> TimerSchedule:
    """Return the schedule of a run that begins at `now`, ms by the wall clock.

    `planned` is the newest batch that the streaming checkpoint has planned. `text` is the content
    of its `TIMERS_FILE`, None if there is none. Without a valid text of that batch, timers are
    unknown for `HORIZON_MS`.
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
        # The text does not name the tick's group, so the tick stays until a batch reaches it.
        schedule.set_timer(tick)
    return schedule


class TimerWatch:
    """The driver's side of the schedule: it reads the timers from the outputs of a query's batches.

    It writes to the wake file when the next timer may be due. `time_of_batch` returns the time of a
    planned batch, ms, from Spark's log of offsets, for batches without an output. Only that time
    says which timers Spark has checked, because clocks may be set back. `store` writes a text to
    the streaming checkpoint (`ticks_to_text`).
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
        """Yield a batch's outputs, and record the timers that they report."""
        self._batch_ms = self._ended = None
        for output in outputs:
            if output.batch_ms is not None:
                self._batch_ms = output.batch_ms
            self._schedule.set_timer(output.wake_ms, output.timer)
            yield output

    def ended(self, batch_id: int) -> None:
        """Drop the timers that a written batch has checked; set when the next batch is due."""
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
        """Store the ticks for the next run. The query was stopped, and runs no further batch."""
        if self._ended is not None:
            self._store(ticks_to_text(self._schedule, self._ended))

    def end(self) -> None:
        """Delete the wake file after the query has ended."""
        self._file.delete()
