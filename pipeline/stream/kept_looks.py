"""Timer ticks of a run that was stopped cleanly, stored for the next run on its checkpoint.

Without them the next run does not know the timers in the state, and begins a batch every resolution
for `HORIZON_MS`. The ticks are a text in the streaming checkpoint, which is deleted, moved and lost
with the checkpoint. The text names the batch after which the state has these timers. It is used
only if that batch is the newest that the streaming checkpoint has planned:

* The state is then the one after that batch, or the batch is run again. In that case it runs on the
  state before it, and every group with a timer that it sets reports the time again. All other
  timers are in the text.
* A run that is killed, or that fails, writes no text. It has planned a batch after the text of an
  earlier run, or it has changed nothing.
* A truncated text is not valid JSON.

Ticks are rounded up to the resolution, so a run with another resolution ignores the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.stream.timer_looks import HORIZON_MS, TimerLooks
from group_coordinator.schemas.unreadable import UNREADABLE

if TYPE_CHECKING:
    from group_coordinator.pipeline.stream.offset import Planned

# The name of the text in a streaming checkpoint; Spark ignores it.
NAME = "timer-looks"


class _Kept(Struct, frozen=True, forbid_unknown_fields=True):
    """The state of `TimerLooks` after a batch; times in ms."""

    batch_id: int
    resolution_ms: int
    unknown_until: int
    ticks: tuple[int, ...]


_decode = msgspec.json.Decoder(_Kept).decode


def kept_text(looks: TimerLooks, batch_id: int) -> str:
    """Return the text that stores the ticks after a batch."""
    kept = _Kept(batch_id, looks.resolution_ms, looks.unknown_until, looks.ticks())
    return msgspec.json.encode(kept).decode()


def looks_after(
    planned: Planned | None, text: str | None, resolution_ms: int, now: int
) -> TimerLooks:
    """Return the ticks of a run that begins at `now`, ms, by the wall clock.

    `planned` is the newest batch that its streaming checkpoint has planned. `text` is the text
    stored in the checkpoint, None if there is none.
    """
    if planned is None:
        return TimerLooks(resolution_ms)
    try:
        kept = None if text is None else _decode(text)
    except UNREADABLE:
        kept = None
    if kept is None or (kept.batch_id, kept.resolution_ms) != (planned.batch_id, resolution_ms):
        return TimerLooks(resolution_ms, now + HORIZON_MS)
    looks = TimerLooks(resolution_ms, kept.unknown_until)
    for tick in kept.ticks:
        # The text does not say which group a tick is for, so each tick stays until a batch reaches
        # it.
        looks.told(tick)
    return looks
