"""The CPU that processes use, as /proc counts it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from group_coordinator.pipeline.node.process import descendants

# HotSpot's compilers are threads of this name, cut off after 15 bytes (man proc): C1 CompilerThre.
_COMPILER = "CompilerThre"


class Cpu(NamedTuple):
    """CPU in s: the total, and the part of the JVMs' compilers."""

    total_s: float
    compiling_s: float


class CpuCounter:
    """Counts the CPU of processes and of all that they have started, from its creation on.

    A process that ends meanwhile is not counted, nor a compiler's thread that does.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._before, self._compiling_before = self._read()

    def used(self) -> Cpu:
        """Return the CPU used until now."""
        after, compiling_after = self._read()
        return Cpu(_more(self._before, after), _more(self._compiling_before, compiling_after))

    def _read(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the CPU of each process and of each compiling thread, by its path in /proc."""
        processes: dict[str, float] = {}
        compilers: dict[str, float] = {}
        for root in self._pids:
            for pid in (root, *(each.pid for each in descendants(root))):
                folder = Path(f"/proc/{pid}")
                try:
                    processes[str(folder)] = _cpu_s(_stat(folder))
                    for thread in (folder / "task").iterdir():
                        stat = _stat(thread)
                        if _COMPILER in stat.partition("(")[2].rpartition(")")[0]:
                            compilers[str(thread)] = _cpu_s(stat)
                except (FileNotFoundError, ProcessLookupError):
                    # It has ended since it was listed.
                    continue
        return processes, compilers


def cpu_s(pid: int, ended_too: bool = False) -> float:
    """Return the CPU seconds that a process has used, with `ended_too` also its ended children.

    Raises FileNotFoundError or ProcessLookupError if there is no such process.
    """
    return _cpu_s(_stat(Path(f"/proc/{pid}")), ended_too)


def _more(before: dict[str, float], after: dict[str, float]) -> float:
    return sum(spent - before.get(path, 0.0) for path, spent in after.items())


def _stat(folder: Path) -> str:
    return (folder / "stat").read_text()


def _cpu_s(stat: str, ended_too: bool = False) -> float:
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if ended_too else 13])) / os.sysconf("SC_CLK_TCK")
