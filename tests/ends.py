"""How a process ended: a test that checks it says so, for a signal is found by its name."""

from __future__ import annotations

import signal
from pathlib import Path


def check_end(status: int | None, said: str | Path = "", expected: int = 0) -> None:
    """Fail unless a process ended with the expected status.

    `status` is a return code as `subprocess` has it, None while the process runs; `said` is what
    the process wrote, or the file with it.
    """
    text = said.read_text("utf-8", "replace") if isinstance(said, Path) else said
    assert status == expected, f"{how_it_ended(status)}, not status {expected}: {text}"


def check_runs(status: int | None, said: str | Path = "") -> None:
    """Fail if a process has ended; see `check_end`."""
    text = said.read_text("utf-8", "replace") if isinstance(said, Path) else said
    assert status is None, f"{how_it_ended(status)}: {text}"


def how_it_ended(status: int | None) -> str:
    """Say a return code in words: `status 1`, `signal 11 (SIGSEGV)`.

    A shell, and Java, have 128 and its number as the status after a signal: it is named as well.
    """
    if status is None:
        return "it runs"
    number = -status if status < 0 else status - 128
    names = {each.value: each.name for each in signal.Signals}
    told = f"signal {number}" if status < 0 else f"status {status}"
    return f"{told} ({names[number]})" if number in names else told
