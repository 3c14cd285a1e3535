"""Checks of a process's end. A failure names the exit status, or the signal by its name."""

from __future__ import annotations

import signal
from pathlib import Path


def check_end(status: int | None, said: str | Path = "", expected: int = 0) -> None:
    """Fail unless a process ended with the expected status.

    `status` is a return code of `subprocess`, None while the process runs. `said` is the output of
    the process, or the file with it.
    """
    text = said.read_text("utf-8", "replace") if isinstance(said, Path) else said
    assert status == expected, f"{how_it_ended(status)}, not status {expected}: {text}"


def check_runs(status: int | None, said: str | Path = "") -> None:
    """Fail if a process has ended; see `check_end`."""
    text = said.read_text("utf-8", "replace") if isinstance(said, Path) else said
    assert status is None, f"{how_it_ended(status)}: {text}"


def how_it_ended(status: int | None) -> str:
    """Describe a return code in words: `status 1`, `signal 11 (SIGSEGV)`.

    After a signal, a shell and Java have the status 128 plus its number: this is named as well.
    """
    if status is None:
        return "it runs"
    number = -status if status < 0 else status - 128
    names = {each.value: each.name for each in signal.Signals}
    told = f"signal {number}" if status < 0 else f"status {status}"
    return f"{told} ({names[number]})" if number in names else told
