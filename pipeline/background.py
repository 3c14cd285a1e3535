"""Background work, each piece in a separate thread.

All threads of the product are created here, because each must end before the interpreter does:
Python ends a thread by unwinding its stack, and if the thread is within delta-rs, DuckDB or Arrow,
the process crashes with a segmentation fault. So when the main thread and the user's non-daemon
threads have ended, all remaining threads are stopped and joined, even if the user has not called
`close`.

A simulation replaces the threads (`use`) and runs the work as steps in simulated time.
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

# The wait for threads at the exit after which a warning is logged, s.
_QUIET_EXIT_S = 5.0


class CannotStart(Failure):
    """A thread cannot start: the process is exiting, or has reached its limit of threads."""


class UsedAfterFork(Failure):
    """Use of an object with threads in a forked child process, which lacks the threads."""


class ProcessGuard:
    """A guard of an object with threads against use in a forked child process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pid = os.getpid()

    def check(self) -> None:
        """Raise UsedAfterFork in another process; call it before a lock of the object is taken."""
        if os.getpid() != self._pid:
            raise UsedAfterFork(
                f"this {self._name} was created in process {self._pid}, and does not work in its "
                f"forked child, process {os.getpid()}: start processes with multiprocessing's "
                'method "spawn" or "forkserver", and create it there'
            )


class BackgroundThread(threading.Thread):
    """A thread that the exit of the process stops and joins. `stop` asks it to end, at once."""

    def __init__(self, name: str, work: Work, stop: Work) -> None:
        # A daemon thread, because Python joins other threads before the callbacks of `atexit`,
        # which stop the threads here; the process would never end.
        super().__init__(target=work, name=name, daemon=True)
        self.stop = stop

    def has_ended(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread for at most `timeout_s`, and return whether it has ended."""
        self.join(timeout_s)
        return not self.is_alive()


class Repeating(Protocol):
    """Periodic work that runs until it is stopped."""

    def stop(self) -> None:
        """Stop the work; a run that has begun ends first."""
        ...


class Background(Protocol):
    """Executor of background work: threads, or the steps of a simulation."""

    def repeat(self, name: str, interval_s: float, work: Work) -> Repeating:
        """Run the work every `interval_s`, the first time after one interval."""
        ...

    def run(self, name: str, work: Work) -> bool:
        """Run the work once, soon; return whether it will run."""
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
            start(name, work, _nothing_to_stop)
        except CannotStart as error:
            log.warning("%s: %s", name, error)
            return False
        return True


_background: Background = _Threads()


def start(name: str, work: Work, stop: Work) -> BackgroundThread:
    """Start a thread that runs the work until `stop` is called. Raises CannotStart.

    `stop` only asks the work to end, and must return at once. It is called at the latest at the
    exit of the process, which joins the thread.
    """
    worker = BackgroundThread(name, work, stop)
    with _lock:
        if _has_ended:
            raise CannotStart(f"cannot start a thread for {name}: the process is exiting")
        _workers[:] = [worker for worker in _workers if worker.is_alive()]
        if not _workers:
            # Callbacks run last in, first out. So the threads end before the callbacks that
            # libraries registered at their import, which may free what the threads use.
            atexit.unregister(_end_all)
            atexit.register(_end_all)
        try:
            worker.start()
        except RuntimeError as error:
            raise CannotStart(f"cannot start a thread for {name}: {error}") from error
        _workers.append(worker)
    return worker


def repeat(name: str, interval_s: float, work: Work) -> Repeating:
    """Run the work every `interval_s` in a thread until it is stopped. Raises CannotStart."""
    return _background.repeat(name, interval_s, work)


def run(name: str, work: Work) -> bool:
    """Run the work once, in a thread that the exit of the process joins.

    Returns False if the work will not run: the main thread has ended, or no thread can be started.
    """
    return _background.run(name, work)


def submit(pool: ThreadPoolExecutor, work: Callable[[], _T]) -> Future[_T]:
    """Submit the work to a pool; run it at once in this thread if the pool accepts no more work.

    Python closes all pools when the main thread ends, while pending requests are still written.
    Work may run twice if the pool queues it and then fails to start a thread.
    """
    try:
        return pool.submit(work)
    except RuntimeError:
        done: Future[_T] = Future()
        try:
            done.set_result(work())
        # As in a pool, `result` raises the error.
        except BaseException as error:
            done.set_exception(error)
        return done


def run_at_eof(fd: int, name: str, work: Work) -> BackgroundThread:
    """Run the work at the end of file of a file descriptor. Raises CannotStart."""
    stop = Stop()

    def await_end() -> None:
        with stop:
            while stop.wait_readable(fd):
                if not os.read(fd, 1 << 16):
                    work()
                    return

    return start(name, await_end, stop.set)


class Stop:
    """A stop signal for a thread that waits for a file descriptor in the block of this object."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()

    def __enter__(self) -> Stop:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._writer.close()

    def set(self) -> None:
        """Stop the thread. A second call does nothing."""
        self._writer.close()

    def wait_readable(self, fd: int, timeout_s: float | None = None) -> bool:
        """Wait until the descriptor has data or is at its end.

        Returns False if the thread was stopped, or after `timeout_s`.
        """
        readable, _, _ = select.select([fd, self._reader.fileno()], [], [], timeout_s)
        return readable == [fd]


@contextmanager
def use(background: Background) -> Iterator[None]:
    """Use another executor for work that is started within the block."""
    global _background
    before, _background = _background, background
    try:
        yield
    finally:
        _background = before


# --- the exit of the process ------------------------------------------------------------------

_lock = threading.Lock()
_workers: list[BackgroundThread] = []
_has_ended = False


def _nothing_to_stop() -> None:
    """Do nothing, because work that runs once ends by itself."""


def _end_all() -> None:
    """Stop and join all threads; Ctrl-C ends the process at once."""
    global _has_ended
    with _lock:
        _has_ended = True
    try:
        for worker in _workers:
            _ask_to_stop(worker)
        limit_s: float | None = _QUIET_EXIT_S
        for worker in _workers:
            if not worker.has_ended(limit_s):
                names = ", ".join(sorted(each.name for each in _workers if each.is_alive()))
                log.warning("the process waits at its exit for these threads: %s", names)
                limit_s = None
                worker.join()
    except KeyboardInterrupt:
        # Python would finish its exit, and a thread in Rust would cause a segmentation fault.
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


def _ask_to_stop(worker: BackgroundThread) -> None:
    try:
        worker.stop()
    # The other threads must be stopped too.
    except Exception:
        log.exception("cannot ask the thread %s to stop", worker.name)


def _forget() -> None:
    """Reset the state in a forked process: it has no threads, and its lock may have been held."""
    global _lock
    _lock = threading.Lock()
    _workers.clear()


os.register_at_fork(after_in_child=_forget)
