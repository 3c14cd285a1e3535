"""Faults of a process after a number of operations on files: failing reads, pauses and kills.

An operation is a read (an opened file or a listed folder, by any library), a write, a commit or a
deletion. So a process is stopped between any two of its steps.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake.exceptions import TableNotFoundError
from msgspec import Struct

from tests.trials.simulation.world import Stopped

if TYPE_CHECKING:
    from random import Random

    from tests.trials.simulation.world import Actor, World

TOO_MANY_FILES = "EMFILE"
BROKEN = "EIO"
SHORT = "short read"
AWAY = "folder away"
KINDS = (TOO_MANY_FILES, BROKEN, SHORT, AWAY)
_ERRORS = {TOO_MANY_FILES: errno.EMFILE, BROKEN: errno.EIO, AWAY: errno.ENOENT}


class ReadFault(Struct, frozen=True):
    """After so many reads of a process the next ones fail: so many `times`, in one way."""

    process: str
    kind: str
    after: int = 0
    times: int = 1

    def line(self) -> str:
        """Return the fault as a line of the log."""
        return f"{self.process}: {self.kind} at {self.times} reads after {self.after}"


class Halt(Struct, frozen=True):
    """After so many operations a process is paused for `ms`; null: it is killed."""

    process: str
    after: int
    ms: float | None

    def line(self) -> str:
        """Return the fault as a line of the log."""
        how = "is killed" if self.ms is None else f"stands still for {self.ms:.0f} ms"
        return f"{self.process} {how} after {self.after} operations"


class Troubles:
    """The faults that wait for the processes of a world; `root` is the folder of the tables."""

    def __init__(self, world: World, root: Path) -> None:
        self._world = world
        self._root = root
        self._chance: Random = world.rng("troubles")
        # Pending faults of a process, each with the number of operations before it.
        self._reads: dict[str, list[tuple[ReadFault, int]]] = {}
        self._halts: dict[str, list[tuple[Halt, int]]] = {}

    def add(self, fault: ReadFault | Halt) -> None:
        """Add a fault of a process."""
        if isinstance(fault, Halt):
            self._halts.setdefault(fault.process, []).append((fault, fault.after))
        else:
            self._reads.setdefault(fault.process, []).append((fault, fault.after))

    def clear(self) -> None:
        """Remove all pending faults."""
        self._reads.clear()
        self._halts.clear()

    def operation(self, actor: Actor) -> None:
        """Take note of an operation; raises Stopped."""
        waiting = self._halts.pop(actor.process.name, [])
        met = next((at for at, (_, left) in enumerate(waiting) if left <= 0), None)
        later = [(halt, left - 1) for at, (halt, left) in enumerate(waiting) if at != met]
        if later:
            self._halts[actor.process.name] = later
        if met is None:
            return
        halt, _ = waiting[met]
        self._world.tell(halt.line())
        if halt.ms is None:
            self._world.count("crashes")
            actor.process.kill()
            raise Stopped
        self._world.count("standstills")
        self._world.stand_still(actor.process, halt.ms)

    def read(self, actor: Actor, path: object) -> float | None:
        """Take note of a read; see `tests.support.failing_reads.Reads`."""
        self._world.count("reads")
        waiting = self._reads.pop(actor.process.name, None)
        if waiting is None:
            return None
        met = next((fault for fault, left in waiting if left <= 0), None)
        left_over = [
            (fault, left - 1) for fault, left in waiting if left > 0 or left > 1 - fault.times
        ]
        if left_over:
            self._reads[actor.process.name] = left_over
        return None if met is None else self._fail(actor, met.kind, str(path))

    def _fail(self, actor: Actor, kind: str, path: str) -> float | None:
        actor.failed_reads += 1
        self._world.count("reads failed")
        self._world.count(f"reads failed: {kind}")
        self._world.tell(f"{kind}: {path.removeprefix(str(self._root))}")
        if kind == SHORT:
            return self._chance.random()
        if kind == AWAY and Path(path).parent == self._root:
            # As delta-rs says it of a table.
            raise TableNotFoundError(f"no log files: {path}")
        raise OSError(_ERRORS[kind], os.strerror(_ERRORS[kind]), path)
