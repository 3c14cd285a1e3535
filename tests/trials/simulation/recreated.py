"""Tables that an operator replaces while nodes run: made anew, an older copy, or away for a while.

Nodes and clients must notice each within `NOTICED_MS`. The operator then acts as the messages of
the product say: a client that is told starts again, and so does a node; without its streaming
checkpoint, where an older copy was put back.
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

# What is done to a table.
EMPTY = "deleted and made again"
OLDER = "set back to an older copy"
AWAY = "renamed away and back"
HOWS = (EMPTY, OLDER, AWAY)
TABLES = (REQUESTS.name, TOPICS.name)
# What a world counts.
WHATS = tuple(f"{table} {how}" for table in TABLES for how in HOWS)
# So long may a process go on that follows a table which was replaced, ms: two comparisons, and a
# batch that was under way.
NOTICED_MS = 5_000.0
# How often the operator looks whether nobody writes a file of the table.
_LOOK_MS = 20.0
_NOT_OURS = shutil.ignore_patterns(".*.tmp")


class Replacement(Struct, frozen=True):
    """What is done to a table.

    `ms` is for how long the table is away, or how old the copy is that is put back.
    """

    table: str
    how: str
    ms: float

    def line(self) -> str:
        """Say what happens."""
        return f"{self.table} is {self.how}, {self.ms:.0f} ms"


class TableOperator:
    """Whoever replaces tables; `on_replaced` is told of each the moment another one is there.

    `make` makes a table anew. `on_copied` is told when what is put back later is taken away or
    copied. The flag of `on_replaced` is whether a start has made the table while it was away.

    It does nothing between two steps of one writing: a table that is deleted under a writer which
    stands still between its last look and its commit is not what is tried here.
    """

    def __init__(
        self,
        world: World,
        files: Files,
        root: Path,
        actor: Actor,
        make: Callable[[str], None],
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
        self._is_busy = False
        # Where a table is while it is away, and copies.
        self._aside = root / "aside"

    def replace(self, replacement: Replacement) -> None:
        """Begin to replace a table, unless it is not there, or another one is being replaced."""
        if self._is_busy or not self._folder(replacement).exists():
            self._world.count("tables that could not be replaced")
            return
        self._is_busy = True
        self._aside.mkdir(exist_ok=True)
        if replacement.how == OLDER:
            self._once_nobody_writes(replacement, lambda: self._copy(replacement))
        else:
            self._once_nobody_writes(replacement, lambda: self._take_away(replacement))

    def _folder(self, replacement: Replacement) -> Path:
        return self._root / replacement.table

    def _once_nobody_writes(self, replacement: Replacement, act: Callable[[], None]) -> None:
        if self._files.are_written(replacement.table):
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
                self._is_busy = False
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
                self._make(replacement.table)
            elif was_made:
                # A start has made it meanwhile: of the two the operator keeps the old one.
                shutil.rmtree(folder)
                aside.rename(folder)
            else:
                aside.rename(folder)
        self._replaced(replacement, was_made)

    def _replaced(self, replacement: Replacement, was_made: bool = False) -> None:
        self._is_busy = False
        self._files.moved_at = self._world.now
        self._world.tell(replacement.line())
        self._world.count("tables replaced")
        self._world.count(f"{replacement.table} {replacement.how}")
        self._on_replaced(replacement, was_made)


def _newest(folder: Path) -> str:
    return max(path.name for path in (folder / "_delta_log").glob("*.json"))
