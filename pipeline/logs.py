"""What a process says of itself: a line a record on standard error, and everything in a file.

A record that asks nothing of anybody is kept from the terminal by `aside`: it stands in the file,
and on the terminal too where the process is to be verbose. A record may carry fields (`extra=`) and
a `detail`, such as a stack trace of Spark's: the file has both, the terminal a line.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from logging.handlers import RotatingFileHandler
from pathlib import Path
from textwrap import indent
from typing import Any, ClassVar, TextIO
from urllib.parse import unquote, urlparse

import msgspec

from group_coordinator.pipeline.quoting import quoted_line, quoted_lines
from group_coordinator.pipeline.user_folders import state_folder

log = logging.getLogger(__name__)

# The command's own lines; its last one, on a failure, begins with this name.
COMMAND = "group-coordinator"
_FILE_BYTES = 10 * 1024 * 1024
_FILES_BEFORE = 2
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"aside", "detail", "asctime", "message"}
# Each of these failures is raised as well, and so is named by whoever ends with it.
_RAISED_AS_WELL = {"py4j", "DataFrameQueryContextLogger"}
_OURS = ("group_coordinator", COMMAND)


class LogFormat(StrEnum):
    """How a line of the log is written."""

    TEXT = "text"
    JSON = "json"


def aside(record: logging.LogRecord) -> bool:
    """Whether a record is for the file alone: told otherwise already, or of no consequence."""
    marked: bool | None = getattr(record, "aside", None)
    if marked is not None:
        return marked
    name = record.name.partition(".")[0]
    # py4j logs by its own loggers, and by the root's.
    module = Path(record.pathname).parent.name
    return bool({name, module} & _RAISED_AS_WELL) or (
        record.levelno < logging.WARNING and name not in _OURS
    )


class TextLines(logging.Formatter):
    """Lines for people: the time, the level and the message; `detailed` has the rest below it."""

    def __init__(self, detailed: bool) -> None:
        super().__init__()
        self._detailed = detailed

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line; a stack trace of ours follows it in any case."""
        message = record.getMessage()
        if record.name != COMMAND:
            message = quoted_line(message)
        if record.name == COMMAND and record.levelno >= logging.ERROR:
            detail = _detail(record) if self._detailed else ""
            return "\n".join(filter(None, [f"{COMMAND}: {message}", detail]))
        time = datetime.fromtimestamp(record.created).isoformat(" ", "milliseconds")
        ours = record.name.partition(".")[0] in _OURS
        whose = record.name if self._detailed or not ours else ""
        line = " ".join(filter(None, [time, record.levelname, whose and f"{whose}:", message]))
        # Indented: an error's text may hold a line that looks like a record's.
        trace = indent(quoted_lines(_trace(record)), "  ")
        below = [trace, _detail(record) if self._detailed else ""]
        return "\n".join(filter(None, [line, *below]))


class JsonLines(logging.Formatter):
    """A JSON object a line: `ts` (UTC), `level`, `logger`, `message`, and the record's fields."""

    def __init__(self, detailed: bool) -> None:
        super().__init__()
        self._detailed = detailed

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        time = datetime.fromtimestamp(record.created, UTC)
        said: dict[str, Any] = {
            "ts": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": quoted_line(record.getMessage()),
        }
        said |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        trace = _trace(record) or (_detail(record) if self._detailed else "")
        if trace:
            said["trace"] = trace
        return msgspec.json.encode(said, enc_hook=str).decode()


def _trace(record: logging.LogRecord) -> str:
    return "" if record.exc_info is None else logging.Formatter().formatException(record.exc_info)


def _detail(record: logging.LogRecord) -> str:
    detail: str = getattr(record, "detail", "")
    return detail


class LogFile(RotatingFileHandler):
    """The file with everything, of at most 10 MB, and the two before it.

    A file that cannot be written ends nothing: a full disk is told once, and what finds no room is
    left out.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, maxBytes=_FILE_BYTES, backupCount=_FILES_BEFORE, encoding="utf-8")
        self.path = path
        self._told = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Say once that the file cannot be written."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._told:
            self._told = True
            log.warning("the log %s cannot be written: %s", self.path, error.strerror)


class ProcessLog:
    """The log of this process; there is one, `current`, once a verb has made it."""

    current: ClassVar[ProcessLog | None] = None

    def __init__(
        self,
        form: LogFormat = LogFormat.TEXT,
        verbose: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        ProcessLog.current = self
        self.form = form
        self.verbose = verbose
        self.file: LogFile | None = None
        lines = {LogFormat.TEXT: TextLines, LogFormat.JSON: JsonLines}[form]
        self._lines: Callable[[bool], logging.Formatter] = lines
        terminal = logging.StreamHandler(stream or sys.stderr)
        terminal.setFormatter(lines(verbose))
        terminal.addFilter(lambda record: verbose or not aside(record))
        self._handlers: list[logging.Handler] = [terminal]
        logging.basicConfig(level=logging.INFO, handlers=self._handlers, force=True)
        logging.captureWarnings(True)
        # One line for each call between Python and the JVM.
        logging.getLogger("py4j").setLevel(logging.WARNING)

    def keep(self, path: Path) -> bool:
        """Write everything to a file as well, from now on; False, with a warning, if it cannot."""
        try:
            self.file = LogFile(path)
        except OSError as error:
            log.warning("no log is kept: %s: %s", path, error.strerror)
            return False
        self.file.setFormatter(self._lines(True))
        logging.getLogger().addHandler(self.file)
        return True

    def fail(self, text: str, detail: str = "", bug: BaseException | None = None) -> None:
        """Say why the process ends, as its last line; the file has the detail below it.

        The line of a `bug` has its stack trace, within the object where lines are JSON.
        """
        logging.getLogger(COMMAND).error("%s", text, extra={"detail": detail}, exc_info=bug)


def default_file(root: str, name: str) -> Path:
    """Where a process's log is kept: beside the tables on a local disk, else in the user's folder.

    The user's folder is `pipeline.user_folders.state_folder`.
    """
    where = urlparse(root)
    if where.scheme in ("", "file"):
        folder = unquote(where.path) if where.scheme else root
        return Path(folder) / "_logs" / f"{name}.log"
    key = hashlib.sha256(root.rstrip("/").encode()).hexdigest()[:8]
    return state_folder() / f"{name}-{key}.log"
