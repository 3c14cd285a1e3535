"""Being told to end, by SIGINT or SIGTERM: a program still ends what it started, and reports."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM)
# What DuckDB's RuntimeError says when a signal's handler has raised during a statement.
_BY_DUCKDB = "Query interrupted"


@contextmanager
def on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` in the main thread for each SIGINT or SIGTERM of the block.

    A shell that runs a job in the background has it ignore SIGINT, and Python leaves that so: for
    the block the signal is heard all the same.
    """
    before = [signal.signal(number, lambda *_: act()) for number in _ENDING]
    try:
        yield
    finally:
        for number, handler in zip(_ENDING, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt in the main thread for each SIGINT or SIGTERM of the block.

    SIGTERM would end this process at once, and the processes that it has started would go on.
    """
    with on_interrupt(_raise_interrupt):
        yield


@contextmanager
def duckdb_interrupted() -> Iterator[None]:
    """Raise KeyboardInterrupt if a statement of DuckDB in the block is ended by Ctrl-C.

    DuckDB takes the signal, and says so by an error that is none of its own kinds: whoever asked
    would be shown a defect of the program.
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) != _BY_DUCKDB:
            raise
        raise KeyboardInterrupt from None


def _raise_interrupt() -> None:
    raise KeyboardInterrupt


def leave_interrupts() -> None:
    """Leave an interrupt, which the terminal sends to all processes, to the one that reports."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
