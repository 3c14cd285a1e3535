"""The end of a run, in which nothing fails any more: what is asked then is answered in time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from tests.trials.gateways.promises import ANSWERED_SOON

if TYPE_CHECKING:
    from tests.trials.simulation.world import Process, World

# So long may all that is asked take once the last fault has ended, ms.
LONGEST_WAIT_MS = 30_000.0
# What the faults have left behind may take so long: then no request has to wait any more.
_SETTLED_MS = 5_000.0


class Calm:
    """When the last fault ended, and how long requests have waited since; ms of true time."""

    def __init__(self, world: World) -> None:
        self.since = inf
        self.longest_ms = 0.0
        self._world = world

    def begin(self, processes: Iterable[Process | None]) -> None:
        """All faults are over, but those who stand still go on only then."""
        stills = [each.still_until for each in processes if each is not None]
        self.since = max(self._world.now, *stills)

    async def settled(self) -> None:
        """Return once what the faults have left behind is over."""
        while self._world.now < self.since + _SETTLED_MS:
            await asyncio.sleep(0.2)

    def answered(self, begun: float) -> None:
        """Take note that a request was answered."""
        if self._world.now >= self.since:
            self._world.check(ANSWERED_SOON)
            self.longest_ms = max(self.longest_ms, self._world.now - max(begun, self.since))

    def not_answered(self, name: str, begun: float) -> None:
        """Take note that a request was not answered in its client's time."""
        if begun >= self.since + _SETTLED_MS:
            self._world.violate(
                ANSWERED_SOON,
                f"a request of {name} was not answered in {self._world.now - begun:.0f} ms, though "
                f"the last fault was over {begun - self.since:.0f} ms before it",
            )
