"""Immediate interruption of a DuckDB query by Ctrl-C.

DuckDB checks for a signal only between two steps of a query, and one step may take hours. Python's
signal handler does not help, because it runs in the main thread, which is within that step. But
Python's C code writes a byte to a socket at once (`signal.set_wakeup_fd`). A second thread reads
this socket and interrupts the query.
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
    """Interrupt the connection's query on a SIGINT in the block, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told, tell = socket.socketpair()
    # A signal handler must not block on a full socket.
    tell.setblocking(False)

    def look() -> None:
        while (number := told.recv(1)) not in (_END, b""):
            if number[0] == signal.SIGINT:
                connection.interrupt()

    def stop() -> None:
        # At the exit of the process, `stop` is also called for a thread that has ended.
        if tell.fileno() >= 0:
            tell.send(_END)

    def end(worker: background.BackgroundThread, before: int) -> None:
        with interrupts_deferred():
            signal.set_wakeup_fd(before)
            stop()
            worker.join()

    with told, tell, ExitStack() as ends:
        # Stop the thread before its socket is closed, even if a signal arrives while it starts.
        with interrupts_deferred():
            worker = background.start("interrupts", look, stop)
            before = signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
            ends.callback(end, worker, before)
        yield
