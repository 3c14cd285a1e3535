"""The resident memory of a coordinator's processes, as Linux keeps it."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

_PROC = Path("/proc")


class Memory(Struct, frozen=True):
    """Bytes: the driver's Python, its JVM, and the largest Python worker; 0 if unknown."""

    driver: int
    jvm: int
    worker: int


def peaks_of(pid: int) -> Memory:
    """The peaks so far of a driver and of what it started; all 0 where there is no /proc."""
    return _memory_of(pid, "VmHWM")


def resident_of(pid: int) -> Memory:
    """What a driver and what it started take now; all 0 where there is no /proc."""
    return _memory_of(pid, "VmRSS")


def _memory_of(pid: int, field: str) -> Memory:
    try:
        status = {int(p.name): _status(p) for p in _PROC.iterdir() if p.name.isdecimal()}
    except OSError:
        return Memory(0, 0, 0)
    family = _descendants(pid, {child: each.get("PPid", "") for child, each in status.items()})
    java = {child for child in family if status[child].get("Name") == "java"}
    workers = family - java - {pid}
    return Memory(
        _bytes(status.get(pid, {}), field),
        max((_bytes(status[child], field) for child in java), default=0),
        max((_bytes(status[child], field) for child in workers), default=0),
    )


def _status(process: Path) -> dict[str, str]:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        # It has ended since it was listed.
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _bytes(status: dict[str, str], field: str) -> int:
    return int(status.get(field, "0 kB").split()[0]) * 1024


def _descendants(pid: int, parents: dict[int, str]) -> set[int]:
    family = {pid}
    while (
        more := {c for c, parent in parents.items() if parent.isdecimal() and int(parent) in family}
        - family
    ):
        family |= more
    return family
