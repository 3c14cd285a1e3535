"""Upkeep during a run: compaction, retention and packing, and a vacuum by the world's clock.

delta-rs would vacuum by the real clock, so `vacuum` deletes files in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta.data_file import data_files
from group_coordinator.pipeline.delta.table import local_folder, refresh
from group_coordinator.pipeline.settings import UpkeepSettings
from group_coordinator.pipeline.upkeep import compaction, retention
from group_coordinator.pipeline.upkeep.compaction import compact
from group_coordinator.pipeline.upkeep.retention import retain
from tests.trials.simulation.files import replaced
from tests.trials.simulation.nodes import ENDINGS

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from tests.trials.simulation.files import Files
    from tests.trials.simulation.world import World

# How far a reader of the tables may lag.
HORIZON_MS = 5_000.0


class Upkeep:
    """A node's upkeep, as steps of the world."""

    def __init__(self, world: World, files: Files, root: str) -> None:
        self._world = world
        self._files = files
        self._root = root
        self._settings = UpkeepSettings(log_cleaner_memory=64 << 20)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Vacuum by the world's clock within the block."""
        with ExitStack() as stack:
            for module in (compaction, retention):
                stack.enter_context(replaced(module, "vacuum", self._vacuum))
            yield

    def compact(self) -> None:
        """Compact the offsets topic, however little of it is dirty."""
        self._try(lambda: compact(self._root, self._settings, clock.clock_ms(), _say, force=True))

    def retain(self) -> None:
        """Pack small files, and delete those that no version within the horizon needs."""
        self._try(lambda: retain(self._root, self._settings, clock.clock_ms(), _say))

    def _try(self, run: Callable[[], object]) -> None:
        try:
            run()
        except ENDINGS as error:
            self._world.tell(f"upkeep failed: {error}")

    def _vacuum(self, handle: DeltaTable, name: str, retention_hours: int) -> int:
        """In `pipeline.upkeep.retention`'s place."""
        del name, retention_hours
        return vacuum(self._world, self._files, handle, HORIZON_MS)


def vacuum(world: World, files: Files, handle: DeltaTable, retention_ms: float) -> int:
    """Delete the files that no version of so long has needed, by the world's clock."""
    with files.ours():
        refresh(handle)
        folder = local_folder(handle.table_uri)
        assert folder is not None
        present = {Path(file.path).name for file in data_files(handle)}
        due = [
            path
            for path in sorted(folder.rglob("*.parquet"))
            if path.name not in present
            and "_delta_log" not in path.parts
            and files.idle_ms(path) > retention_ms
        ]
        for path in due:
            files.vacuum(path)
        world.count("files vacuumed", len(due))
        return len(due)


def _say(_text: str) -> None:
    """Discard the progress."""
