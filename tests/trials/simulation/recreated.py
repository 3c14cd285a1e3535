"""Tables that an operator replaces while nodes run: created again, an older copy, or missing.

Nodes and clients must notice each within `NOTICED_MS`. The operator then follows the product's
messages: a notified client or node restarts. Where an older copy was put back, the node restarts
without its streaming checkpoint.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.schemas.tables import REQUESTS, TOPICS

if TYPE_CHECKING:
    from tests.trials.simulation.files import Files
    from tests.trials.simulation.world import Actor, World

# The kinds of replacement.
EMPTY = "deleted and made again"
OLDER = "set back to an older copy"
AWAY = "renamed away and back"
HOWS = (EMPTY, OLDER, AWAY)
TABLES = (REQUESTS.name, TOPICS.name)
# The names of the world's counts.
WHATS = tuple(f"{table} {how}" for table in TABLES for how in HOWS)
# The time for which a process may still follow a replaced table, ms: two comparisons, and a running
# batch.
NOTICED_MS = 5_000.0
# The interval at which the operator polls until no file of the table is being written.
_LOOK_MS = 20.0
_NOT_OURS = shutil.ignore_patterns(".*.tmp")


class Replacement(Struct, frozen=True):
    """The replacement of a table.

    `ms` is the time for which the table is missing, or the age of the copy that is put back.
    `folder` is the table's path under the root, if it is not the table's name.
    """

    table: str
    how: str
    ms: float
    folder: str = ""

    def line(self) -> str:
        """Return the replacement as a line of the log."""
        return f"{self.table} is {self.how}, {self.ms:.0f} ms"


class TableOperator:
    """An operator that replaces tables; `on_replaced` is called as soon as another table exists.

    `make` creates the table again. `on_copied` is called when the table that is put back later is
    taken away or copied. The flag of `on_replaced` is whether a start has created the table
    meanwhile.

    The operator waits while a file of the table is being written. Deleting a table under a writer
    that is paused between its last check and its commit is not tested.
    """

    def __init__(
        self,
        world: World,
        files: Files,
        root: Path,
        actor: Actor,
        make: Callable[[Replacement], None],
        on_copied: Callable[[Replacement], None],
        on_replaced: Callable[[Replacement, bool], None],
    ) -> None:
        self._world = world
        self._files = files
        self._root = root
        self._actor = actor
        self._make = make
        self._on_copied = on_copied
        self._on_replaced = on_replaced
        # Whether a table is being replaced.
        self.is_busy = False
        # Where a table is while it is away, and copies.
        self._aside = root / "aside"

    def replace(self, replacement: Replacement) -> None:
        """Begin to replace a table, unless it is not there, or another one is being replaced."""
        if self.is_busy or not self._folder(replacement).exists():
            self._world.count("tables that could not be replaced")
            return
        self.is_busy = True
        self._aside.mkdir(exist_ok=True)
        if replacement.how == OLDER:
            self._once_nobody_writes(replacement, lambda: self._copy(replacement))
        else:
            self._once_nobody_writes(replacement, lambda: self._take_away(replacement))

    def _folder(self, replacement: Replacement) -> Path:
        return self._root / (replacement.folder or replacement.table)

    def _once_nobody_writes(self, replacement: Replacement, act: Callable[[], None]) -> None:
        # `Files` counts all tables in one folder of the root together.
        if self._files.are_written(self._folder(replacement).relative_to(self._root).parts[0]):
            again = lambda: self._once_nobody_writes(replacement, act)  # noqa: E731
            self._world.later(_LOOK_MS, self._actor, again)
        else:
            act()

    def _copy(self, replacement: Replacement) -> None:
        copy = self._aside / f"copy-{replacement.table}"
        with self._files.ours():
            shutil.copytree(self._folder(replacement), copy, ignore=_NOT_OURS)
        self._on_copied(replacement)
        put_back = lambda: self._once_nobody_writes(  # noqa: E731
            replacement, lambda: self._put_back(replacement, copy)
        )
        self._world.later(replacement.ms, self._actor, put_back)

    def _put_back(self, replacement: Replacement, copy: Path) -> None:
        folder = self._folder(replacement)
        with self._files.ours():
            if _newest(folder) == _newest(copy):
                # It is the same table.
                shutil.rmtree(copy)
                self.is_busy = False
                return
            shutil.rmtree(folder)
            copy.rename(folder)
        self._replaced(replacement)

    def _take_away(self, replacement: Replacement) -> None:
        self._files.away.add(replacement.table)
        self._world.tell(f"{replacement.table} is away")
        self._folder(replacement).rename(self._aside / replacement.table)
        self._on_copied(replacement)
        self._world.later(replacement.ms, self._actor, lambda: self._bring_back(replacement))

    def _bring_back(self, replacement: Replacement) -> None:
        folder, aside = self._folder(replacement), self._aside / replacement.table
        self._files.away.discard(replacement.table)
        was_made = folder.exists()
        with self._files.ours():
            if replacement.how == EMPTY:
                shutil.rmtree(aside)
                self._make(replacement)
            elif was_made:
                # A start has made it meanwhile: of the two the operator keeps the old one.
                shutil.rmtree(folder)
                aside.rename(folder)
            else:
                aside.rename(folder)
        self._replaced(replacement, was_made)

    def _replaced(self, replacement: Replacement, was_made: bool = False) -> None:
        self.is_busy = False
        self._files.moved_at = self._world.now
        self._world.tell(replacement.line())
        self._world.count("tables replaced")
        self._world.count(f"{replacement.table} {replacement.how}")
        self._on_replaced(replacement, was_made)


def _newest(folder: Path) -> str:
    return max(path.name for path in (folder / "_delta_log").glob("*.json"))
