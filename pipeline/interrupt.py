"""Handling of SIGINT and SIGTERM: a program still stops the processes it started, and reports."""

from __future__ import annotations

import math
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from group_coordinator.pipeline import background

if TYPE_CHECKING:
    import duckdb


_ENDING = (signal.SIGINT, signal.SIGTERM)
# The interval at which a waiting thread wakes up for signals, s. Python calls handlers only in the
# main thread, which a signal does not wake if another thread received it, or if it arrived just
# before the thread blocked in C.
_POLL_S = 0.2
# What ends the thread that reads the signals of a DuckDB query; no signal has the number 0.
_END = b"\0"
# The message of DuckDB's RuntimeError when a signal handler raised during a statement.
_BY_DUCKDB = "Query interrupted"


class SignalEvent:
    """A replacement of threading.Event that signal handlers may set.

    A handler runs in the main thread, between any two of its steps. A thread that waits for a
    threading.Event holds its lock during some steps, and a handler that sets the event then would
    wait for the lock for ever. `SimpleQueue.put` is reentrant, so a handler may call it at any
    step.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._wake_ups: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Set the event and wake all waiting threads."""
        self._is_set = True
        self._wake_ups.put(None)

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return self._is_set

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the event is set, for at most `timeout_s`; return whether it is set."""
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not self._is_set:
            left_s = until - time.monotonic()
            if left_s <= 0:
                break
            try:
                self._wake_ups.get(timeout=min(left_s, _POLL_S))
            except Empty:
                continue
            # Wake the next waiting thread.
            self._wake_ups.put(None)
        return self._is_set


@contextmanager
def _handled_by(handle: Callable[[int], object]) -> Iterator[None]:
    before = [signal.signal(each, lambda number, _: handle(number)) for each in _ENDING]
    try:
        yield
    finally:
        for number, handler in zip(_ENDING, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` in the main thread for each SIGINT or SIGTERM in the block.

    SIGINT is handled even if a shell started this process as a background job, which ignores
    SIGINT.
    """
    with _handled_by(lambda _number: act()):
        yield


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt in the main thread for each SIGINT or SIGTERM in the block.

    By default SIGTERM ends this process at once, and its child processes keep running.
    """
    with on_interrupt(_raise_interrupt):
        yield


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer a SIGINT or SIGTERM in the block to its end.

    Use it to start a child process: an interrupt between the start and the assignment would leave
    the process without an owner that stops it. It has no effect in other threads than the main one,
    which are never interrupted.
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
    """Raise KeyboardInterrupt if Ctrl-C ends a DuckDB statement in the block.

    DuckDB raises a plain RuntimeError, which the user would see as a bug of the program.
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) != _BY_DUCKDB:
            raise
        raise KeyboardInterrupt from None


@contextmanager
def query_interrupted_by_sigint(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupt the connection's query on a SIGINT in the block, if this is the main thread.

    DuckDB checks for a signal only between two steps of a query, and one step may take hours.
    Python's handler cannot run in that time, because the main thread is within the step. But
    Python's C code writes a byte to a socket at once (`signal.set_wakeup_fd`), and a second thread
    reads it and interrupts the query.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    # A signal handler must not block on a full socket.
    writer.setblocking(False)

    def interrupt_on_sigint() -> None:
        while (number := reader.recv(1)) not in (_END, b""):
            if number[0] == signal.SIGINT:
                connection.interrupt()

    def stop() -> None:
        # At the exit of the process, `stop` is also called for a thread that has ended.
        if writer.fileno() >= 0:
            writer.send(_END)

    def end(worker: background.BackgroundThread, before: int) -> None:
        with interrupts_deferred():
            signal.set_wakeup_fd(before)
            stop()
            worker.join()

    with reader, writer, ExitStack() as ends:
        # Stop the thread before its socket is closed, even if a signal arrives while it starts.
        with interrupts_deferred():
            worker = background.start("interrupts", interrupt_on_sigint, stop)
            before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            ends.callback(end, worker, before)
        yield


def _raise_interrupt() -> None:
    raise KeyboardInterrupt
