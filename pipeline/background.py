"""Work beside the main thread, each piece in a thread of its own.

All threads of the product are made here, because each must have ended before the interpreter does:
a thread that is within delta-rs, DuckDB or Arrow while the interpreter ends makes the whole process
end by a segmentation fault, since Python ends the thread and its stack is unwound through Rust or
C++. So once the main thread has ended, and with it each thread of the user's that is no daemon,
every thread that is left is told to end and is awaited, whether the user has called `close` or not.

A simulation puts itself in the threads' place (`use`), and takes the work as steps in its own time.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from group_coordinator.pipeline.errors import Failure

log = logging.getLogger(__name__)

Work = Callable[[], None]
_T = TypeVar("_T")

# How long the process's end waits for threads before it says so, s.
_SILENT_S = 5.0


class CannotStart(Failure):
    """No thread can be started: the process ends, or it has as many as it may have."""


class BackgroundThread(threading.Thread):
    """A thread that the process's end stops and waits for. `stop` asks it to end, at once."""

    def __init__(self, name: str, work: Work, stop: Work) -> None:
        # A daemon: Python waits for other threads before the callbacks of `atexit`, so a thread
        # that nobody stops would keep the process from ending for ever.
        super().__init__(target=work, name=name, daemon=True)
        self.stop = stop

    def has_ended(self, timeout_s: float | None = None) -> bool:
        """Wait for the end, for so many seconds at most; whether it has come."""
        self.join(timeout_s)
        return not self.is_alive()


class Repeating(Protocol):
    """Work that goes on until it is stopped."""

    def stop(self) -> None:
        """Do the work no more; one that is under way ends first."""
        ...


class Background(Protocol):
    """How work is done beside the main thread: in threads, or as a simulation's steps."""

    def repeat(self, name: str, interval_s: float, work: Work) -> Repeating:
        """Do the work every `interval_s`, the first time after one."""
        ...

    def run(self, name: str, work: Work) -> bool:
        """Do the work once, soon; whether it will be done."""
        ...


class _RepeatingThread:
    def __init__(self, name: str, interval_s: float, work: Work) -> None:
        self._interval_s = interval_s
        self._work = work
        self._stopping = threading.Event()
        self._thread = start(name, self._run, self._stopping.set)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            self._work()


class _Threads:
    def repeat(self, name: str, interval_s: float, work: Work) -> Repeating:
        return _RepeatingThread(name, interval_s, work)

    def run(self, name: str, work: Work) -> bool:
        if not threading.main_thread().is_alive():
            return False
        try:
            start(name, work, _wait_for_it)
        except CannotStart as error:
            log.warning("%s: %s", name, error)
            return False
        return True


_background: Background = _Threads()


def start(name: str, work: Work, stop: Work) -> BackgroundThread:
    """Start a thread of that name, which does the work until `stop` is called.

    `stop` only tells the work to end, and returns at once. It is called at the latest when the
    process ends, which waits for the work. Raises CannotStart.
    """
    worker = BackgroundThread(name, work, stop)
    with _lock:
        if _has_ended:
            raise CannotStart(f"no thread for {name}: the process ends")
        _workers[:] = [one for one in _workers if one.is_alive()]
        if not _workers:
            # Callbacks are called last in, first out: what libraries registered as they were
            # imported, and may take down there, outlives the threads that are in them.
            atexit.unregister(_end_all)
            atexit.register(_end_all)
        try:
            worker.start()
        except RuntimeError as error:
            raise CannotStart(f"no thread for {name}: {error}") from error
        _workers.append(worker)
    return worker


def repeat(name: str, interval_s: float, work: Work) -> Repeating:
    """Do the work every `interval_s` in a thread of that name, until it is stopped.

    Raises CannotStart.
    """
    return _background.repeat(name, interval_s, work)


def run(name: str, work: Work) -> bool:
    """Do the work once, in a thread of that name that the process's end waits for.

    False if it will not be done: the main thread has ended, or no thread can be started.
    """
    return _background.run(name, work)


def submit(pool: ThreadPoolExecutor, work: Callable[[], _T]) -> Future[_T]:
    """Have a pool do the work; at once, in this thread, where the pool takes none any more.

    Python closes all pools when the main thread ends, while requests that wait are still written.
    Work that a pool has queued before it found that it can start no thread may be done twice.
    """
    try:
        return pool.submit(work)
    except RuntimeError:
        done: Future[_T] = Future()
        try:
            done.set_result(work())
        # As the pool does: it is raised where the result is asked for.
        except BaseException as error:
            done.set_exception(error)
        return done


def start_at_end_of(fd: int, name: str, work: Work) -> BackgroundThread:
    """Do the work once what is read from a file descriptor ends. Raises CannotStart."""
    stop = Stop()

    def await_end() -> None:
        with stop:
            while stop.awaits(fd):
                if not os.read(fd, 1 << 16):
                    work()
                    return

    return start(name, await_end, stop.set)


class Stop:
    """Tells a thread to end that waits for a file descriptor; the thread is in the block of it."""

    def __init__(self) -> None:
        self._told, self._tell = socket.socketpair()

    def __enter__(self) -> Stop:
        return self

    def __exit__(self, *_: object) -> None:
        self._told.close()
        self._tell.close()

    def set(self) -> None:
        """Tell the thread. A second call does nothing."""
        self._tell.close()

    def awaits(self, fd: int, timeout_s: float | None = None) -> bool:
        """Wait until there is something to read, or its end; False if that is not to be read.

        That is if the thread is told to end, or after the timeout.
        """
        readable, _, _ = select.select([fd, self._told.fileno()], [], [], timeout_s)
        return readable == [fd]


@contextmanager
def use(background: Background) -> Iterator[None]:
    """Have another do the work that is begun within the block."""
    global _background
    before, _background = _background, background
    try:
        yield
    finally:
        _background = before


# --- the process's end ------------------------------------------------------------------------

_lock = threading.Lock()
_workers: list[BackgroundThread] = []
_has_ended = False


def _wait_for_it() -> None:
    """Do nothing: work that is done once ends by itself, so it is not told to end."""


def _end_all() -> None:
    """Tell all threads to end, and wait for them; Ctrl-C ends the process at once."""
    global _has_ended
    with _lock:
        _has_ended = True
    try:
        for worker in _workers:
            _tell(worker)
        limit_s: float | None = _SILENT_S
        for worker in _workers:
            if not worker.has_ended(limit_s):
                names = ", ".join(sorted(one.name for one in _workers if one.is_alive()))
                log.warning("the process ends when these threads have ended: %s", names)
                limit_s = None
                worker.join()
    except KeyboardInterrupt:
        # Python would go on to its end, and a thread in Rust would make that a segmentation fault.
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


def _tell(worker: BackgroundThread) -> None:
    try:
        worker.stop()
    # The other threads must be told too.
    except Exception:
        log.exception("%s is not told to end", worker.name)


def _forget() -> None:
    """A forked process has none of its parent's threads, and may have its lock as it was held."""
    global _lock
    _lock = threading.Lock()
    _workers.clear()


os.register_at_fork(after_in_child=_forget)
