"""What the driver's JVM writes to standard error, as records of this process's log.

The JVM's standard error is a pipe to the driver. What comes is lines of Spark's log in the pattern
of conf/log4j2.properties, with stack traces below them, and whatever the JVM, Ivy and the Python
workers print. All of it goes to the log's file. Told, in one line each, are warnings and errors
that somebody may have to act on, and not:

* what the end of the query says as well: the driver raises it, and ends with it in one line
  (`QUERY`). A query that is cut off may log a thousand lines, a StackOverflowError of Spark's own
  among them;
* what pyspark's workers print when the JVM lets go of one that is idle, or ends;
* what Spark prints before it runs: the driver tells how far it is, and why it does not start;
* anything, once the coordinator is being stopped.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from group_coordinator.pipeline import background
from group_coordinator.pipeline.session.scratch import ScratchFolder

_HEAD = re.compile(
    r"(?:\d\d/\d\d/\d\d )?\d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN|ERROR|FATAL)"
    # Some put more into their name: `RocksDB StateStoreProviderId[...]`.
    r" ([\w.$]+)(?: [^:]*)?: (.*)"
)
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
# Whatever these log of a task, a job or a query that fails, the query's own end says too.
QUERY = {"Executor", "TaskSetManager", "DAGScheduler", "MicroBatchExecution"}
_TRACEBACK = "Traceback (most recent call last):"
_WORKER_ENDS = ("BrokenPipeError", "EOFError", "ConnectionResetError")
_PYTHON_ENDS = re.compile(r"[\w.]+(?:Error|Exception|Interrupt|Exit)\b")
_GOES_ON = ("During handling of the above", "The above exception was")
_HARMLESS = (
    "WARNING: Using incubator modules",
    "WARNING: package sun.security.action not in java.base",
    "NOTE: Picked up ",
    "PySpark daemon failed to flush",
    "Setting default log level to",
    "To adjust logging level use",
    "Using Spark's default log4j profile",
)
_FETCHES = re.compile(r"downloading \S*/([^/\s]+\.jar)")
# `Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: ...]`
_ENDS_JVM = re.compile(
    r'Exception in thread "main" (?:[\w.$]+: )?(.*)|(Error: .*|Error occurred .*)'
)
_PIECE = 1 << 16
_QUIET_S = 0.05

log = logging.getLogger(__name__)


class Said(NamedTuple):
    """Something that was written at once: `head` and the lines below it.

    `level` and `logger` are those of Spark's log; a `logger` of "" is no record of a log, but
    whatever a process printed.
    """

    level: int
    logger: str
    head: str
    below: tuple[str, ...] = ()


class Gatherer:
    """Makes what was said out of lines, as they come."""

    def __init__(self) -> None:
        self._said: Said | None = None

    def feed(self, line: str) -> Said | None:
        """Take the next line; return what ended before it, if something did."""
        head = _HEAD.match(line)
        if head is not None:
            return self._begin(Said(_LEVELS[head[1]], head[2], head[3]))
        if self._said is None or self._is_ended(line):
            return self._begin(Said(logging.WARNING, "", line))
        self._said = self._said._replace(below=(*self._said.below, line))
        return None

    def end(self) -> Said | None:
        """Return what has been gathered, when nothing more comes for a while."""
        return self._begin(None)

    def _begin(self, said: Said | None) -> Said | None:
        ended, self._said = self._said, said
        return None if ended is None or not (ended.head.strip() or ended.below) else ended

    def _is_ended(self, line: str) -> bool:
        """Whether a line that is no record of Spark's log begins something new."""
        said = self._said
        assert said is not None
        if said.logger:
            # A worker's traceback is no part of a warning, and mostly is of an error.
            return line == _TRACEBACK and said.level < logging.ERROR
        if _TRACEBACK in (said.head, *said.below):
            goes_on = not line.strip() or line.startswith(_GOES_ON)
            return bool(_PYTHON_ENDS.match(_last(said))) and not goes_on
        # A stack trace of Java's goes on; any other line is for itself.
        return not line.startswith(("\t", " ", "Caused by:"))


def is_told(said: Said) -> bool:
    """Whether a person may have to act on it, while Spark runs."""
    if said.logger:
        return said.level >= logging.WARNING and said.logger not in QUERY
    if _TRACEBACK in (said.head, *said.below):
        of_pyspark = any("/pyspark/" in line for line in said.below)
        return not (of_pyspark and _last(said).startswith(_WORKER_ENDS))
    return not said.head.startswith(_HARMLESS)


def line_of(said: Said) -> str:
    """Return it in one line: what a traceback ends with, and the first line of anything else."""
    return _last(said) if said.head == _TRACEBACK else said.head


def jar_of(said: Said) -> str | None:
    """The name of the jar that Ivy begins to download, if it says that."""
    found = _FETCHES.match(said.head)
    return found and found[1]


def cause_of(said: Said) -> str | None:
    """Why the JVM ends before Spark runs, if it says that."""
    found = _ENDS_JVM.match(said.head)
    return found and (found[1] or found[2])


def _last(said: Said) -> str:
    return next((line for line in reversed(said.below) if line.strip()), said.head)


class JvmLog:
    """Reads what the JVM writes, in a thread: by a pipe, or by a named pipe from one that runs.

    Before `started` nothing is told but which jars are fetched; `cause` is then why the JVM ended,
    None if it has not said. After `ending` nothing is told.
    """

    def __init__(self) -> None:
        self.cause: str | None = None
        self._tells = False
        self._reader: background.BackgroundThread | None = None
        self._folder: ScratchFolder | None = None

    def pipe(self) -> int:
        """Open a pipe; returns its end to write to, which is to be closed once the JVM has it."""
        reads, writes = os.pipe()
        self.cause = None
        self._read(reads)
        return writes

    def named_pipe(self) -> str:
        """Open a named pipe, in a folder that is deleted with this object."""
        self._folder = ScratchFolder()
        path = f"{self._folder.path}/jvm"
        os.mkfifo(path, 0o600)
        # Open for writing too: whoever opens it later need not wait, and it has no end before ours.
        self._read(os.open(path, os.O_RDWR))
        return path

    def started(self) -> None:
        """Tell from now on what somebody may have to act on."""
        self._tells = True

    def ending(self) -> None:
        """Tell nothing more."""
        self._tells = False

    def await_end(self, timeout_s: float) -> None:
        """Wait until the JVM has written its last, so that `cause` is known."""
        if self._reader is not None:
            self._reader.join(timeout_s)

    def _read(self, pipe: int) -> None:
        stop = background.Stop()

        def read() -> None:
            with stop:
                for said in _gathered(pipe, stop):
                    self._hear(said)
                os.close(pipe)

        self._reader = background.start("jvm-log", read, stop.set)

    def _hear(self, said: Said) -> None:
        jar = jar_of(said)
        if jar is not None and not self._tells:
            log.info("fetching %s", jar)
        self.cause = self.cause or cause_of(said)
        aside = not (self._tells and is_told(said))
        name = f"spark.{said.logger}" if said.logger else "spark"
        extra = {"aside": aside, "detail": "\n".join(said.below)}
        head = said.head if aside and said.logger else line_of(said)
        logging.getLogger(name).log(max(said.level, logging.INFO), "%s", head, extra=extra)


def _gathered(pipe: int, stop: background.Stop) -> Iterator[Said]:
    gatherer, rest = Gatherer(), b""
    while True:
        if not stop.awaits(pipe, _QUIET_S):
            yield from _present(gatherer.end())
            if not stop.awaits(pipe):
                return
        piece = os.read(pipe, _PIECE)
        *lines, rest = (rest + piece).split(b"\n")
        if not piece:
            lines = [rest]
        for line in lines:
            yield from _present(gatherer.feed(line.decode("utf-8", "replace").rstrip("\r")))
        if not piece:
            yield from _present(gatherer.end())
            return


def _present(said: Said | None) -> list[Said]:
    return [] if said is None else [said]
