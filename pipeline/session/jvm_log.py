"""The standard error of the driver's JVM, as records of this process's log.

The JVM's standard error is a pipe to the driver. It carries Spark's log, in the pattern of
conf/log4j2.properties and with stack traces. It also carries the output of the JVM, Ivy and the
Python workers. All of it goes to the log file. The terminal shows one line for each warning or
error that may need an action. It does not show:

* Errors of the query (`QUERY`). The driver raises them and prints them in one line. An interrupted
  query can log a thousand lines, among them a StackOverflowError inside Spark.
* Messages of pyspark's workers when the JVM stops an idle worker, or ends.
* Output before Spark runs. The driver logs the progress, and the reason if Spark does not start.
* Any output while the coordinator stops.
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
    # Some loggers append details to their name: `RocksDB StateStoreProviderId[...]`.
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
# Loggers of failed tasks, jobs and queries. The query's error has the same information.
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
    """A log record or other output of the JVM: the first line `head` and the lines `below` it.

    `level` and `logger` are those of Spark's log. If `logger` is empty, the lines are output of a
    process and not a log record.
    """

    level: int
    logger: str
    head: str
    below: tuple[str, ...] = ()


class Gatherer:
    """Assembler of single lines into records."""

    def __init__(self) -> None:
        self._said: Said | None = None

    def feed(self, line: str) -> Said | None:
        """Add the next line. Return the previous record if this line starts a new one."""
        head = _HEAD.match(line)
        if head is not None:
            return self._begin(Said(_LEVELS[head[1]], head[2], head[3]))
        if self._said is None or self._is_ended(line):
            return self._begin(Said(logging.WARNING, "", line))
        self._said = self._said._replace(below=(*self._said.below, line))
        return None

    def end(self) -> Said | None:
        """Return the assembled record, if any. Called when no more lines come for a while."""
        return self._begin(None)

    def _begin(self, said: Said | None) -> Said | None:
        ended, self._said = self._said, said
        return None if ended is None or not (ended.head.strip() or ended.below) else ended

    def _is_ended(self, line: str) -> bool:
        """Return whether a line without the head of a log record starts a new record."""
        said = self._said
        assert said is not None
        if said.logger:
            # A worker's traceback is usually part of an error, and never of a warning.
            return line == _TRACEBACK and said.level < logging.ERROR
        if _TRACEBACK in (said.head, *said.below):
            goes_on = not line.strip() or line.startswith(_GOES_ON)
            return bool(_PYTHON_ENDS.match(_last(said))) and not goes_on
        # Lines of a Java stack trace belong to the record; any other line starts a new one.
        return not line.startswith(("\t", " ", "Caused by:"))


def is_told(said: Said) -> bool:
    """Return whether a record may need an action, so that the terminal shows it."""
    if said.logger:
        return said.level >= logging.WARNING and said.logger not in QUERY
    if _TRACEBACK in (said.head, *said.below):
        of_pyspark = any("/pyspark/" in line for line in said.below)
        return not (of_pyspark and _last(said).startswith(_WORKER_ENDS))
    return not said.head.startswith(_HARMLESS)


def line_of(said: Said) -> str:
    """Return the last line of a traceback, or the first line of any other record."""
    return _last(said) if said.head == _TRACEBACK else said.head


def jar_of(said: Said) -> str | None:
    """Return the name of the jar that Ivy starts to download; None for other records."""
    found = _FETCHES.match(said.head)
    return found and found[1]


def cause_of(said: Said) -> str | None:
    """Return the reason why the JVM ends before Spark runs; None for other records."""
    found = _ENDS_JVM.match(said.head)
    return found and (found[1] or found[2])


def _last(said: Said) -> str:
    return next((line for line in reversed(said.below) if line.strip()), said.head)


class JvmLog:
    """A thread that logs the JVM's standard error: from a pipe, or from a named pipe.

    A JVM that already runs writes to a named pipe. Before `started` the terminal shows only the
    jars that are downloaded, after `ending` nothing. `cause` is the reason why the JVM ended before
    Spark ran, None if it did not print one.
    """

    def __init__(self) -> None:
        self.cause: str | None = None
        self._tells = False
        self._reader: background.BackgroundThread | None = None
        self._folder: ScratchFolder | None = None

    def pipe(self) -> int:
        """Open a pipe and return its write end, which the caller closes after the JVM's start."""
        reads, writes = os.pipe()
        self.cause = None
        self._read(reads)
        return writes

    def named_pipe(self) -> str:
        """Open a named pipe and return its path. Its folder is deleted with this object."""
        self._folder = ScratchFolder()
        path = f"{self._folder.path}/jvm"
        os.mkfifo(path, 0o600)
        # Open for writing too, so that a writer never waits, and the reader sees no early end.
        self._read(os.open(path, os.O_RDWR))
        return path

    def started(self) -> None:
        """Show records that may need an action in the terminal from now on."""
        self._tells = True

    def ending(self) -> None:
        """Show no more records in the terminal."""
        self._tells = False

    def await_end(self, timeout_s: float) -> None:
        """Wait until the JVM has closed its standard error, so that `cause` is set."""
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
        file_only = not (self._tells and is_told(said))
        name = f"spark.{said.logger}" if said.logger else "spark"
        extra = {"file_only": file_only, "detail": "\n".join(said.below)}
        head = said.head if file_only and said.logger else line_of(said)
        logging.getLogger(name).log(max(said.level, logging.INFO), "%s", head, extra=extra)


def _gathered(pipe: int, stop: background.Stop) -> Iterator[Said]:
    gatherer, rest = Gatherer(), b""
    while True:
        if not stop.wait_readable(pipe, _QUIET_S):
            yield from _present(gatherer.end())
            if not stop.wait_readable(pipe):
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
