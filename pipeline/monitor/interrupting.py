"""Ctrl-C ends a query, however long one step of it takes.

DuckDB looks for a signal between two steps of a query, and the main thread may be within one step
for hours. Python's own handler runs in that thread as well. What comes at once is a byte that
Python's C code writes to a socket (`signal.set_wakeup_fd`).
"""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from group_coordinator.pipeline import background
from group_coordinator.pipeline.interrupt import interrupts_deferred

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

_END = b"\0"


@contextmanager
def interrupts_end(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Have a SIGINT of the block interrupt the connection's query; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told, tell = socket.socketpair()
    # The handler of a signal must not wait for room in the socket.
    tell.setblocking(False)

    def look() -> None:
        while (number := told.recv(1)) not in (_END, b""):
            if number[0] == signal.SIGINT:
                connection.interrupt()

    def stop() -> None:
        # The process's end tells threads that have ended, too.
        if tell.fileno() >= 0:
            tell.send(_END)

    def end(worker: background.BackgroundThread, before: int) -> None:
        with interrupts_deferred():
            signal.set_wakeup_fd(before)
            stop()
            worker.join()

    with told, tell, ExitStack() as ends:
        # The thread is ended before its socket is closed, even if a signal comes as it starts.
        with interrupts_deferred():
            worker = background.start("interrupts", look, stop)
            before = signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
            ends.callback(end, worker, before)
        yield
