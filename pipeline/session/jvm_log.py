"""The standard error of the driver's JVM, as records of this process's log.

It carries Spark's log, in the pattern of conf/log4j2.properties and with stack traces, and the
output of the JVM, Ivy and the Python workers. All of it goes to the log file. The terminal shows
one line for each warning or error that may need an action. It does not show:

* Errors of the query (`QUERY`). The driver raises them and prints them in one line. An interrupted
  query can log a thousand lines.
* Messages of pyspark's workers when the JVM stops an idle worker, or ends.
* Output before Spark runs. The driver logs the progress, and the reason if Spark does not start.
* Any output while the coordinator stops.

Levels and a pattern of log4j2 cannot replace it, because the reason why a JVM does not start and
the tracebacks of Python workers are not log records.
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
_CONTINUES = ("During handling of the above", "The above exception was")
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


class JvmLogRecord(NamedTuple):
    """A log record or other output of the JVM: the first line `head` and the lines `below` it.

    `level` and `logger` are as in Spark's log. `logger` is empty for other output.
    """

    level: int
    logger: str
    head: str
    below: tuple[str, ...] = ()


class LineAssembler:
    """Assembler of the JVM's output lines into records with their stack traces."""

    def __init__(self) -> None:
        self._record: JvmLogRecord | None = None

    def feed(self, line: str) -> JvmLogRecord | None:
        """Add the next line. Return the previous record if this line starts a new one."""
        head = _HEAD.match(line)
        if head is not None:
            return self._begin(JvmLogRecord(_LEVELS[head[1]], head[2], head[3]))
        if self._record is None or self._is_ended(line):
            return self._begin(JvmLogRecord(logging.WARNING, "", line))
        self._record = self._record._replace(below=(*self._record.below, line))
        return None

    def end(self) -> JvmLogRecord | None:
        """Return the assembled record, if any. Called when no more lines come for a while."""
        return self._begin(None)

    def _begin(self, record: JvmLogRecord | None) -> JvmLogRecord | None:
        ended, self._record = self._record, record
        return None if ended is None or not (ended.head.strip() or ended.below) else ended

    def _is_ended(self, line: str) -> bool:
        """Return whether a line without the head of a log record starts a new record."""
        record = self._record
        assert record is not None
        if record.logger:
            # A worker's traceback is usually part of an error, and never of a warning.
            return line == _TRACEBACK and record.level < logging.ERROR
        if _TRACEBACK in (record.head, *record.below):
            continues = not line.strip() or line.startswith(_CONTINUES)
            return bool(_PYTHON_ENDS.match(_last(record))) and not continues
        # Lines of a Java stack trace belong to the record; any other line starts a new one.
        return not line.startswith(("\t", " ", "Caused by:"))


def needs_action(record: JvmLogRecord) -> bool:
    """Return whether a record may need an action, so that the terminal shows it."""
    if record.logger:
        return record.level >= logging.WARNING and record.logger not in QUERY
    if _TRACEBACK in (record.head, *record.below):
        of_pyspark = any("/pyspark/" in line for line in record.below)
        return not (of_pyspark and _last(record).startswith(_WORKER_ENDS))
    return not record.head.startswith(_HARMLESS)


def terminal_line(record: JvmLogRecord) -> str:
    """Return the last line of a traceback, or the first line of any other record."""
    return _last(record) if record.head == _TRACEBACK else record.head


def downloaded_jar(record: JvmLogRecord) -> str | None:
    """Return the name of the jar that Ivy starts to download; None for other records."""
    found = _FETCHES.match(record.head)
    return found and found[1]


def failure_cause(record: JvmLogRecord) -> str | None:
    """Return the reason why the JVM ends before Spark runs; None for other records."""
    found = _ENDS_JVM.match(record.head)
    return found and (found[1] or found[2])


def _last(record: JvmLogRecord) -> str:
    return next((line for line in reversed(record.below) if line.strip()), record.head)


class JvmLog:
    """A thread that logs the JVM's standard error: from a pipe, or from a named pipe.

    A JVM that already runs writes to a named pipe. Before `started` the terminal shows only the
    jars that are downloaded, after `ending` nothing. `cause` is the reason that the JVM printed
    when it ended before Spark ran, or None.
    """

    def __init__(self) -> None:
        self.cause: str | None = None
        self._is_shown = False
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
        self._is_shown = True

    def ending(self) -> None:
        """Show no more records in the terminal."""
        self._is_shown = False

    def await_end(self, timeout_s: float) -> None:
        """Wait until the JVM has closed its standard error, so that `cause` is set."""
        if self._reader is not None:
            self._reader.join(timeout_s)

    def _read(self, pipe: int) -> None:
        stop = background.Stop()

        def read() -> None:
            with stop:
                for record in _records(pipe, stop):
                    self._log_record(record)
                os.close(pipe)

        self._reader = background.start("jvm-log", read, stop.set)

    def _log_record(self, record: JvmLogRecord) -> None:
        jar = downloaded_jar(record)
        if jar is not None and not self._is_shown:
            log.info("downloading %s", jar)
        self.cause = self.cause or failure_cause(record)
        file_only = not (self._is_shown and needs_action(record))
        name = f"spark.{record.logger}" if record.logger else "spark"
        extra = {"file_only": file_only, "detail": "\n".join(record.below)}
        head = record.head if file_only and record.logger else terminal_line(record)
        logging.getLogger(name).log(max(record.level, logging.INFO), "%s", head, extra=extra)


def _records(pipe: int, stop: background.Stop) -> Iterator[JvmLogRecord]:
    assembler, rest = LineAssembler(), b""
    while True:
        if not stop.wait_readable(pipe, _QUIET_S):
            yield from filter(None, [assembler.end()])
            if not stop.wait_readable(pipe):
                return
        piece = os.read(pipe, _PIECE)
        *lines, rest = (rest + piece).split(b"\n")
        if not piece:
            lines = [rest]
        for line in lines:
            record = assembler.feed(line.decode("utf-8", "replace").rstrip("\r"))
            if record is not None:
                yield record
        if not piece:
            yield from filter(None, [assembler.end()])
            return
