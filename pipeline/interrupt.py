"""Being told to end, by SIGINT or SIGTERM: a program still ends what it started, and reports."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

_ENDING = (signal.SIGINT, signal.SIGTERM)
# A signal that another thread is given, or that comes just before the main thread sleeps in C, does
# not wake it, and Python calls the handler only in the main thread: it has to look, this often, s.
_LOOK_S = 0.2
# What DuckDB's RuntimeError says when a signal's handler has raised during a statement.
_BY_DUCKDB = "Query interrupted"


class SignalEvent:
    """A threading.Event that signal handlers may set.

    A handler runs in the main thread, between any two of its steps. If that thread waits for a
    threading.Event, it holds the event's lock for some of these steps, and a handler that sets the
    event then waits for the lock for ever: the process would never stop. `SimpleQueue.put` is made
    to be called at such a moment.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._told: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Have `is_set` be true, and everybody who waits go on."""
        self._is_set = True
        self._told.put(None)

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return once it is set, or after so many seconds; whether it is set."""
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not self._is_set:
            left_s = until - time.monotonic()
            if left_s <= 0:
                break
            try:
                self._told.get(timeout=min(left_s, _LOOK_S))
            except Empty:
                continue
            # For the next one who waits.
            self._told.put(None)
        return self._is_set


@contextmanager
def _handled_by(handle: Callable[[int], object]) -> Iterator[None]:
    """Have `handle` be told of each ending signal of the block, by its number."""
    before = [signal.signal(each, lambda number, _: handle(number)) for each in _ENDING]
    try:
        yield
    finally:
        for number, handler in zip(_ENDING, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` in the main thread for each SIGINT or SIGTERM of the block.

    A shell that runs a job in the background has it ignore SIGINT, and Python leaves that so: for
    the block the signal is heard all the same.
    """
    with _handled_by(lambda _number: act()):
        yield


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt in the main thread for each SIGINT or SIGTERM of the block.

    SIGTERM would end this process at once, and the processes that it has started would go on.
    """
    with on_interrupt(_raise_interrupt):
        yield


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Have a SIGINT or SIGTERM of the block be heard at its end.

    A process that the block starts is known by then to whoever is to end it: an interrupt between
    the start and the assignment would leave the process to itself. Only the main thread is ever
    interrupted; in another one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    try:
        with _handled_by(came.append):
            yield
    finally:
        for number in came[:1]:
            signal.raise_signal(number)


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
