"""The signals that ask a coordinator's process to stop, in order or at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.interrupt import SignalEvent
from group_coordinator.pipeline.node.process import jvm_of
from group_coordinator.pipeline.session.driver_jvm import before_jvm_ends
from group_coordinator.pipeline.session.guard import unless_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from group_coordinator.pipeline.session.jvm_log import JvmLog

# A second request stops the node at once if it comes later than this, s. `timeout` sends two
# signals within a moment, to the process and to its process group.
_AGAIN_AFTER_S = 1.0
# How long an ending JVM waits for the coordinator to end after the hand-over, s. The coordinator
# finishes its batch, in at most 10 s, and records its stop.
JVM_WAITS_S = 60


class StopRequest:
    """A request to stop, which signal handlers and threads set and the node's thread awaits."""

    def __init__(self) -> None:
        self.requested = SignalEvent()
        self.at_once = SignalEvent()
        self._requested_at = 0.0

    def set(self) -> None:
        """Ask the node to stop."""
        if not self.requested.is_set():
            self._requested_at = monotonic()
            self.requested.set()

    def set_again(self) -> None:
        """Ask the node to stop; at once, if it was asked at least `_AGAIN_AFTER_S` s ago."""
        if self.requested.is_set() and monotonic() - self._requested_at >= _AGAIN_AFTER_S:
            self.at_once.set()
        self.set()


class StartAborted(BaseException):
    """The process was asked to end before Spark ran."""


class StopSignals:
    """The reaction of a process to SIGTERM, Ctrl-C and the end of its JVM.

    Before Spark runs, the process aborts its start (`StartAborted`). Later it hands its partitions
    over and ends between two batches; a second signal skips the hand-over.
    """

    def __init__(self, jvm_log: JvmLog, jvm_waits_s: int = JVM_WAITS_S) -> None:
        self.request = StopRequest()
        self._jvm_log = jvm_log
        self._jvm_waits_s = jvm_waits_s
        self._is_starting = True
        self._is_deferred = False
        self._done = threading.Event()
        self._jvm_pid: int | None = None

    def install(self) -> None:
        """Install the handlers of SIGTERM and SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer signals to the end of the block, because an interrupted import is broken."""
        self._is_deferred = True
        yield
        self._is_deferred = False
        if self.request.requested.is_set():
            self._abort()

    def watch_jvm(self, spark: SparkSession) -> None:
        """From now on, stop the node in order on a signal to this process or to the JVM."""
        self._is_starting = False
        self._jvm_pid = jvm_of(os.getpid())
        # Spark has just installed a handler of Ctrl-C, which would cancel the current batch.
        self.install()
        with unless_missing("a SIGTERM to the JVM interrupts a batch, which is run again"):
            before_jvm_ends(spark, self._on_jvm_end, self._jvm_waits_s)

    def jvm_has_ended(self) -> bool:
        """Whether Spark's JVM has ended."""
        return self._jvm_pid is not None and jvm_of(os.getpid()) != self._jvm_pid

    def release_jvm(self) -> None:
        """Let the JVM end, because this process no longer needs it."""
        self._done.set()

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self._is_deferred:
            self.request.set()
        elif self._is_starting:
            self._abort()
        else:
            self._jvm_log.ending()
            self.request.set_again()

    def _abort(self) -> None:
        self._is_starting = False
        raise StartAborted

    def _on_jvm_end(self) -> None:
        self._jvm_log.ending()
        self.request.set()
        self._done.wait(self._jvm_waits_s)
