"""Time of a start on a root without rows, compared with Spark's own start.

The time runs from the start of the process until it prints `ready`: Python, the JVM, Spark, the
tables and the first batch. Coordinator and floor take turns, each start in a new process. CPU is
that of the process and of all its children, as /proc counts it. Before that the archive of Spark's
classes is made, as a coordinator does half a minute after its first start on a machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

from msgspec import Struct

from group_coordinator.pipeline.node.archive_maker import make_archive
from group_coordinator.pipeline.node.process import descendants
from group_coordinator.pipeline.session.start import missing_archive
from group_coordinator.pipeline.settings import Settings
from group_coordinator.pipeline.tables.store import ensure_tables
from tests.bench.cpu import cpu_s
from tests.bench.report import Aim, Column, Report
from tests.bench.running import COORDINATOR, FLOOR
from tests.bench.start_floor import MODULE
from tests.support.process import KillableCoordinator


class Started(Struct, frozen=True):
    """A start: the seconds until `ready`, and the CPU seconds of all its processes until then."""

    seconds: float
    cpu_s: float


class Starts(Struct):
    """The starts of one machine, in seconds."""

    machine: Annotated[str, Column("machine")]
    starts: Annotated[int, Column("starts")]
    fastest: Annotated[float, Column("fastest, s", ".1f")]
    middle: Annotated[float, Column("median, s", ".1f")]
    slowest: Annotated[float, Column("slowest, s", ".1f")]
    cpu_s: Annotated[float, Column("CPU, s", ".1f")]


class StartReport(Report):
    """Both machines."""

    machines: list[Starts]

    def title(self) -> str:
        """Return the description of Spark's place."""
        return "Starts on a root without rows, Spark on local[*]"

    def rows(self) -> list[Starts]:
        """Return the rows, the floor first."""
        return self.machines

    def aims(self) -> list[Aim]:
        """Return the aims: a start is short enough to wait for."""
        (found,) = (each for each in self.machines if each.machine == COORDINATOR)
        return [Aim("the median start", "s", 8.0, found.middle)]


def bench_start(rounds: int, say: Callable[[str], None]) -> StartReport:
    """Start each machine so many times; `say` hears of progress. Raises Failure."""
    found: dict[str, list[Started]] = {FLOOR: [], COORDINATOR: []}
    with tempfile.TemporaryDirectory(prefix="group-coordinator-bench-") as folder:
        here = Path(folder)
        archive = missing_archive(Settings(), str(here))
        if archive is not None:
            say(f"start: making {archive}")
            make_archive(archive)
        for number in range(rounds):
            for machine, starts in found.items():
                root = here / f"{machine}-{number}"
                ensure_tables(str(root))
                module = MODULE if machine == FLOOR else "group_coordinator"
                one = _start(module, root, here / f"{machine}-{number}.log")
                starts.append(one)
                say(
                    f"start: {number + 1} of {rounds}: {machine}: {one.seconds:.1f} s, "
                    f"{one.cpu_s:.1f} s of CPU"
                )
    return StartReport([summary(machine, starts) for machine, starts in found.items()])


def summary(machine: str, starts: Sequence[Started]) -> Starts:
    """Return the starts of a machine in one row."""
    seconds = [each.seconds for each in starts]
    cpu_s = median(each.cpu_s for each in starts)
    return Starts(machine, len(starts), min(seconds), median(seconds), max(seconds), cpu_s)


def _start(module: str, root: Path, log: Path) -> Started:
    began = time.monotonic()
    process = KillableCoordinator(str(root), None, log, module)
    try:
        process.await_ready(look_s=0.02)
        seconds = time.monotonic() - began
        pids = [process.pid, *(each.pid for each in descendants(process.pid))]
        return Started(seconds, sum(map(_cpu_s, pids)))
    finally:
        process.stop()


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of its ended children."""
    try:
        return cpu_s(pid, ended_too=True)
    except (FileNotFoundError, ProcessLookupError):
        # It has ended since it was listed: it is among its parent's.
        return 0.0
