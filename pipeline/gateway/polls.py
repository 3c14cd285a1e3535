"""A lower bound of the time at which a client sent the frame that is read from its socket.

A gateway that was paused, such as a stopped process or machine, reads old frames when it resumes.
Their client may have moved to another gateway meanwhile. So a frame is dated by the last poll of
its socket that found nothing: it was sent after that poll.

Ticks record the time in the event loop. Between two ticks the loop polls its sockets, and it
handles the events of a poll before the second tick. So a frame that is read after tick N was sent
after tick N-1, provided that its socket stayed registered with the selector.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import since_boot_ms

if TYPE_CHECKING:
    from collections.abc import Callable

# The time between two ticks, s. A frame is dated too early by at most two of them, unless the loop
# is blocked.
_TICK_EVERY_S = 0.25


class Polls:
    """The ticks of one event loop, in ms of `since_boot_ms`."""

    def __init__(self, now_ms: Callable[[], int] = since_boot_ms) -> None:
        self._now_ms = now_ms
        self._last = now_ms()
        # A frame that is handled now was sent after this time, if its socket was polled during the
        # last two ticks.
        self.empty_at = self._last
        self.ticks = 0

    def tick(self) -> None:
        """Record the time of a tick."""
        self.empty_at, self._last = self._last, self._now_ms()
        self.ticks += 1

    async def follow(self) -> None:
        """Tick until cancelled."""
        while True:
            self.tick()
            await asyncio.sleep(_TICK_EVERY_S)


class SentTimes:
    """The time after which the bytes read from one socket were sent.

    The socket counts as polled from each call of `polled` on.
    """

    __slots__ = ("_known_from", "_polls", "after")

    def __init__(self, polls: Polls) -> None:
        self._polls = polls
        # The last bytes read were sent after this time, ms of `since_boot_ms`.
        self.after = polls.empty_at
        self.polled()

    def polled(self) -> None:
        """Note that the socket is polled from now on.

        Bytes that are in it already may be as old as the last bytes read.
        """
        self._known_from = self._polls.ticks + 2

    def read(self) -> None:
        """Note that bytes were read from the socket, and update `after`."""
        if self._polls.ticks >= self._known_from:
            self.after = self._polls.empty_at
