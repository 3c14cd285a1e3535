"""What the event loop knows of when a client sent what is read of its socket.

A gateway that stands still, such as a stopped process or a paused machine, reads old frames when it
goes on. Meanwhile their client may have turned to another gateway. So a frame is dated by the last
poll of its socket that found nothing: it was sent after that.

The loop is told the time again and again, by ticks. Between two ticks it polls its sockets, and it
handles what a poll found before the second tick. So what is handled after a tick was sent after the
tick before that one, if its socket was polled all the while.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import since_boot_ms

if TYPE_CHECKING:
    from collections.abc import Callable

# The time between two ticks, s. A frame is dated too early by two of them at most, unless the loop
# stands still.
_TICK_EVERY_S = 0.25


class Polls:
    """The ticks of one event loop, in ms of `since_boot_ms`."""

    def __init__(self, now_ms: Callable[[], int] = since_boot_ms) -> None:
        self._now_ms = now_ms
        self._last = now_ms()
        # What is handled now was sent after that, if its socket was polled for the last two ticks.
        self.empty_at = self._last
        self.ticks = 0

    def tick(self) -> None:
        """Take the time of a tick."""
        self.empty_at, self._last = self._last, self._now_ms()
        self.ticks += 1

    async def follow(self) -> None:
        """Tick until cancelled."""
        while True:
            self.tick()
            await asyncio.sleep(_TICK_EVERY_S)


class SentTimes:
    """When what is read of one socket was sent. It is not polled before `polled` says so."""

    __slots__ = ("_known_from", "_polls", "after")

    def __init__(self, polls: Polls) -> None:
        self._polls = polls
        # What was read last was sent after that, ms of `since_boot_ms`.
        self.after = polls.empty_at
        self.polled()

    def polled(self) -> None:
        """From now on the socket is polled; what is in it may be as old as what was read last."""
        self._known_from = self._polls.ticks + 2

    def read(self) -> None:
        """Take note that something was read from the socket."""
        if self._polls.ticks >= self._known_from:
            self.after = self._polls.empty_at
