"""The clock that the code under test reads in a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.trials.simulation.clocks import MachineClock

if TYPE_CHECKING:
    from tests.trials.simulation.world import World


class WorldClock:
    """The clock of the code under test: that of the machine which takes the current step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._true = MachineClock()

    def _machine(self) -> MachineClock:
        actor = self._world.current
        return self._true if actor is None else actor.process.clock

    def wall_ms(self) -> int:
        """Return the wall clock of the current machine, ms since 1970."""
        return self._machine().wall_ms(self._world.now)

    def monotonic_s(self) -> float:
        """Return the monotonic clock of the current machine, s."""
        return self._machine().monotonic_s(self._world.now)

    def sleep(self, seconds: float) -> None:
        """Let time pass for the current actor."""
        self._world.sleep(seconds)

    # --- as the module `time` has them ----------------------------------------------------------

    def monotonic(self) -> float:
        """`time.monotonic`."""
        return self.monotonic_s()

    def time(self) -> float:
        """`time.time`."""
        return self.wall_ms() / 1000

    def time_ns(self) -> int:
        """`time.time_ns`."""
        return self.wall_ms() * 1_000_000

    def clock_gettime_ns(self, _which: int) -> int:
        """`time.clock_gettime_ns`, of a clock that is never set back."""
        return int(self.monotonic_s() * 1_000_000_000)
