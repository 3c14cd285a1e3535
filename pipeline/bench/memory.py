"""The resident memory of a coordinator's processes, as Linux keeps it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from pipeline.bench.report import Column

_PROC = Path("/proc")
# Written to a process's `clear_refs`, this resets its peak of resident memory (man proc).
_PEAKS = "5"


class Memory(Struct, frozen=True):
    """Bytes of the driver's Python, of its JVM and of the largest Python worker; 0 if unknown."""

    driver: Annotated[int, Column("peak MB: driver", ".0f", unit=1e6)]
    jvm: Annotated[int, Column("JVM", ".0f", unit=1e6)]
    worker: Annotated[int, Column("worker", ".0f", unit=1e6)]


def peaks_of(pid: int) -> Memory:
    """The peaks so far of a driver and of its descendants; all 0 where there is no /proc."""
    family = _family(pid)
    java = {member for member, status in family.items() if status.get("Name") == "java"}
    return Memory(
        _peak(family.get(pid, {})),
        max((_peak(family[member]) for member in java), default=0),
        max((_peak(family[member]) for member in family.keys() - java - {pid}), default=0),
    )


def forget_peaks(pid: int) -> None:
    """Reset the peaks; a kernel without `clear_refs` keeps those since each process began."""
    for member in _family(pid):
        # A process that has ended since it was listed has no peak to reset.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            (_PROC / str(member) / "clear_refs").write_text(_PEAKS)


def _family(pid: int) -> dict[int, dict[str, str]]:
    """The `status` in /proc of a process and of all its descendants."""
    try:
        status = {int(p.name): _status(p) for p in _PROC.iterdir() if p.name.isdecimal()}
    except OSError:
        return {}
    family = {pid} & status.keys()
    while more := {child for child in status.keys() - family if _parent(status[child]) in family}:
        family |= more
    return {member: status[member] for member in family}


def _parent(status: dict[str, str]) -> int:
    return int(status.get("PPid", "0"))


def _status(process: Path) -> dict[str, str]:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        # The process has ended since it was listed.
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _peak(status: dict[str, str]) -> int:
    return int(status.get("VmHWM", "0 kB").split()[0]) * 1024
