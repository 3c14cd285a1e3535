"""Upkeep of topics with own tables: retention, packing and VACUUM, during all other work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.settings import UpkeepSettings
from group_coordinator.pipeline.upkeep import topic_retention
from group_coordinator.pipeline.upkeep.topic_retention import retain_topics
from tests.trials.simulation.files import replaced
from tests.trials.simulation.upkeep import vacuum

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from tests.trials.simulation.files import Files
    from tests.trials.simulation.world import Actor, World

# A file that was packed is deleted so long after, ms: a reader may still be about to open it.
_RETENTION_MS = 300.0
_PAUSE_MS = (200.0, 1_500.0)


class TopicsUpkeep:
    """A process that runs the product's upkeep of topics until the run is quiet."""

    def __init__(self, world: World, files: Files, actor: Actor, root: str) -> None:
        self.is_quiet = False
        self._world = world
        self._files = files
        self._actor = actor
        self._root = root
        self._chance = world.rng("upkeep")

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Vacuum by the world's clock within the block."""
        with replaced(topic_retention, "vacuum", self._vacuum):
            yield

    def step(self) -> None:
        """Run upkeep once, and again later."""
        if self.is_quiet:
            return
        try:
            results = retain_topics(self._root, UpkeepSettings(), clock.clock_ms(), _say)
        # As in the schedule of a node, a failed run is retried later.
        except STORE_FAILS as error:
            self._world.tell(f"upkeep of topics: {error}")
            results = []
        for result in results:
            if result.failure is not None:
                self._world.tell(f"upkeep of {result.table}: {result.failure}")
                self._world.count("upkeep failed")
        self._world.count("upkeep runs")
        self._world.later(self._chance.uniform(*_PAUSE_MS), self._actor, self.step)

    def _vacuum(self, handle: DeltaTable, name: str, retention_hours: int) -> int:
        """In `pipeline.upkeep.retention`'s place."""
        del name, retention_hours
        return vacuum(self._world, self._files, handle, _RETENTION_MS)


def _say(_text: str) -> None:
    """Discard the progress."""
