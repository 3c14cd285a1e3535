"""Work beside the main thread, each piece in a thread of its own.

A simulation puts itself in the threads' place (`use`), and takes the work as steps in its own time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

Work = Callable[[], None]


class Repeating(Protocol):
    """Work that goes on until it is stopped."""

    def stop(self) -> None:
        """Do the work no more; one that is under way ends first."""
        ...


class Background(Protocol):
    """Who does the work."""

    def repeat(self, name: str, interval_s: float, work: Work) -> Repeating:
        """Do the work every `interval_s`, the first time after one."""
        ...

    def run(self, name: str, work: Work) -> None:
        """Do the work once, soon."""
        ...


class _RepeatingThread:
    def __init__(self, name: str, interval_s: float, work: Work) -> None:
        self._interval_s = interval_s
        self._work = work
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            self._work()


class _Threads:
    def repeat(self, name: str, interval_s: float, work: Work) -> Repeating:
        return _RepeatingThread(name, interval_s, work)

    def run(self, name: str, work: Work) -> None:
        # No daemon thread: a process that ends while one is within delta-rs ends by a segmentation
        # fault, so the process waits for the thread.
        threading.Thread(target=work, name=name).start()


_background: Background = _Threads()


def repeat(name: str, interval_s: float, work: Work) -> Repeating:
    """Do the work every `interval_s` in a thread of that name, until it is stopped."""
    return _background.repeat(name, interval_s, work)


def run(name: str, work: Work) -> None:
    """Do the work once, in a thread of that name that the process's end waits for."""
    _background.run(name, work)


@contextmanager
def use(background: Background) -> Iterator[None]:
    """Have another do the work that is begun within the block."""
    global _background
    before, _background = _background, background
    try:
        yield
    finally:
        _background = before
