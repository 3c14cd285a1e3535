"""The ticks of a run that was stopped in order, kept for the next run on its streaming checkpoint.

Without them the next run does not know the timers that the state holds, and begins a batch every
resolution for `HORIZON_MS`. They are a text in the streaming checkpoint, which is deleted, moved
and lost with the checkpoint. The text says after which batch the state has these timers. It is used
only if that batch is the last one that the streaming checkpoint has planned:

* The state is then the one after that batch, or the batch is run again: on the state before it, and
  every group whose timer it sets tells the time again. All other timers are in the text.
* A run that is killed, or that ends by an error, writes no text, and has planned a batch since the
  text of an earlier run, or changed nothing.
* A text that was cut off is no JSON.

Ticks are rounded up to the resolution, so a run with another resolution does not use the text
either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.stream.timer_looks import HORIZON_MS, TimerLooks
from group_coordinator.schemas.unreadable import UNREADABLE

if TYPE_CHECKING:
    from group_coordinator.pipeline.stream.offset import Planned

# What the text is called in a streaming checkpoint; Spark passes over it.
NAME = "timer-looks"


class _Kept(Struct, frozen=True, forbid_unknown_fields=True):
    """`TimerLooks` after a batch; times in ms."""

    batch_id: int
    resolution_ms: int
    unknown_until: int
    ticks: tuple[int, ...]


_decode = msgspec.json.Decoder(_Kept).decode


def kept_text(looks: TimerLooks, batch_id: int) -> str:
    """The text to keep of the ticks after a batch."""
    kept = _Kept(batch_id, looks.resolution_ms, looks.unknown_until, looks.ticks())
    return msgspec.json.encode(kept).decode()


def looks_after(
    planned: Planned | None, text: str | None, resolution_ms: int, now: int
) -> TimerLooks:
    """The ticks with which a run begins at `now`, ms, by the wall clock.

    `planned` is the last batch that its streaming checkpoint has planned, and `text` what the
    checkpoint has kept of the ticks, None if nothing.
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
        # Which group a tick is for is not kept, so each stays until a batch reaches it.
        looks.told(tick)
    return looks
