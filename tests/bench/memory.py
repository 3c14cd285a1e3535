"""The resident memory of a coordinator's processes, as Linux keeps it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from group_coordinator.pipeline.node.process import descendants
from tests.bench.report import Column

_PROC = Path("/proc")
# Written to a process's `clear_refs`, this resets its peak of resident memory (man proc).
_PEAKS = "5"


class Memory(Struct, frozen=True):
    """Bytes of the driver's Python, of its JVM and of the largest Python worker; 0 if unknown."""

    driver: Annotated[int, Column("peak MB: driver", ".0f", unit=1e6)]
    jvm: Annotated[int, Column("JVM", ".0f", unit=1e6)]
    worker: Annotated[int, Column("worker", ".0f", unit=1e6)]


def peaks_of(pid: int) -> Memory:
    """Return the peaks so far of a driver and of its descendants; all 0 if there is no /proc."""
    below = descendants(pid)
    java = [process.pid for process in below if process.name == "java"]
    others = [process.pid for process in below if process.name != "java"]
    return Memory(_peak(pid), max(map(_peak, java), default=0), max(map(_peak, others), default=0))


def forget_peaks(pid: int) -> None:
    """Reset the peaks; a kernel without `clear_refs` keeps those since each process began."""
    for member in (pid, *(process.pid for process in descendants(pid))):
        # A process that has ended since it was listed has no peak to reset.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            (_PROC / str(member) / "clear_refs").write_text(_PEAKS)


def _peak(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        # The process has ended since it was listed.
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)
