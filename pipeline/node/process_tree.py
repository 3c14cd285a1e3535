"""The descendants of a coordinator's process, read from /proc."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class Process(NamedTuple):
    """A process: its id, the id of its parent, and its name."""

    pid: int
    parent: int
    name: str


def descendants(pid: int) -> list[Process]:
    """Return the children of a process and all their descendants; empty without /proc."""
    try:
        numbers = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
    except OSError:
        return []
    processes = [found for number in numbers if (found := _read(number)) is not None]
    family, found_pids = [], {pid}
    while more := [p for p in processes if p.parent in found_pids and p.pid not in found_pids]:
        family += more
        found_pids |= {process.pid for process in more}
    return family


def jvm_of(pid: int) -> int | None:
    """Return the process id of a driver's JVM; None if it has none."""
    return next((each.pid for each in descendants(pid) if each.name == "java"), None)


def _read(pid: int) -> Process | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        # The process has ended since it was listed.
        return None
    # man proc: pid (name) state ppid ...; a name may have spaces and parentheses.
    name, _, rest = text.partition("(")[2].rpartition(")")
    state, parent = rest.split()[:2]
    return None if state == "Z" else Process(pid, int(parent), name)
