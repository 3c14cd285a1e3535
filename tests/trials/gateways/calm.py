"""The end of a run, without faults: requests must be answered in time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from tests.trials.gateways.promises import ANSWERED_SOON

if TYPE_CHECKING:
    from tests.trials.simulation.world import Process, World

# The longest time of all work after the last fault, ms.
LONGEST_WAIT_MS = 30_000.0
# The effects of the last faults may last this long; after that no request has to wait.
_SETTLED_MS = 5_000.0


class Calm:
    """The end of the last fault and the longest wait of a request since, in ms of true time."""

    def __init__(self, world: World) -> None:
        self.since = inf
        self.longest_ms = 0.0
        self._world = world

    def begin(self, processes: Iterable[Process | None]) -> None:
        """Set the end of all faults: now, or the end of the last pause of a process."""
        stills = [each.still_until for each in processes if each is not None]
        self.since = max(self._world.now, *stills)

    async def settled(self) -> None:
        """Return after the effects of the last faults are over."""
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
