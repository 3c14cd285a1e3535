"""The log of a process: one line per record on standard error, and all records in a file.

Records that need no action by the operator (`is_file_only`) go only to the file, unless the process
is verbose. A record may have fields (`extra=`) and a `detail`, such as Spark's stack trace, for the
file and a verbose terminal.
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

# The logger of the command's own lines. The last line of a failed command begins with this name.
COMMAND = "group-coordinator"
_FILE_BYTES = 10 * 1024 * 1024
_KEPT_FILES = 2
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"file_only", "detail", "asctime", "message"}
# Loggers of failures that are also raised. The caller reports them.
_ALSO_RAISED = {"py4j", "DataFrameQueryContextLogger"}
_OWN_LOGGERS = ("group_coordinator", COMMAND)


class LogFormat(StrEnum):
    """The format of a log line."""

    TEXT = "text"
    JSON = "json"


def is_file_only(record: logging.LogRecord) -> bool:
    """Return whether a record goes to the file only: it is minor, or is also reported elsewhere.

    An attribute `file_only` of the record that is not None decides.
    """
    marked: bool | None = getattr(record, "file_only", None)
    if marked is not None:
        return marked
    name = record.name.partition(".")[0]
    # py4j uses its own loggers and the root logger.
    module = Path(record.pathname).parent.name
    return bool({name, module} & _ALSO_RAISED) or (
        record.levelno < logging.WARNING and name not in _OWN_LOGGERS
    )


class TextFormatter(logging.Formatter):
    """Text lines with time, level and message; `detailed` adds the logger and the detail."""

    def __init__(self, detailed: bool) -> None:
        super().__init__()
        self._detailed = detailed

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line, followed by the Python stack trace, if any."""
        message = record.getMessage()
        if record.name != COMMAND:
            message = quoted_line(message)
        if record.name == COMMAND and record.levelno >= logging.ERROR:
            detail = _detail(record) if self._detailed else ""
            return "\n".join(filter(None, [f"{COMMAND}: {message}", detail]))
        time = datetime.fromtimestamp(record.created).isoformat(" ", "milliseconds")
        ours = record.name.partition(".")[0] in _OWN_LOGGERS
        whose = record.name if self._detailed or not ours else ""
        line = " ".join(filter(None, [time, record.levelname, whose and f"{whose}:", message]))
        # Indented, because an error's text may contain a line that looks like a log record.
        trace = indent(quoted_lines(_trace(record)), "  ")
        below = [trace, _detail(record) if self._detailed else ""]
        return "\n".join(filter(None, [line, *below]))


class JsonFormatter(logging.Formatter):
    """JSON lines with `ts` (UTC), `level`, `logger`, `message` and the record's fields."""

    def __init__(self, detailed: bool) -> None:
        super().__init__()
        self._detailed = detailed

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        time = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, Any] = {
            "ts": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": quoted_line(record.getMessage()),
        }
        fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        trace = _trace(record) or (_detail(record) if self._detailed else "")
        if trace:
            fields["trace"] = trace
        return msgspec.json.encode(fields, enc_hook=str).decode()


def _trace(record: logging.LogRecord) -> str:
    return "" if record.exc_info is None else logging.Formatter().formatException(record.exc_info)


def _detail(record: logging.LogRecord) -> str:
    detail: str = getattr(record, "detail", "")
    return detail


class LogFile(RotatingFileHandler):
    """A log file of at most 10 MB with all records; the two previous files are kept.

    A full disk causes one warning, and records that cannot be written are dropped.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, maxBytes=_FILE_BYTES, backupCount=_KEPT_FILES, encoding="utf-8")
        self.path = path
        self._has_warned = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Log once that the file cannot be written."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._has_warned:
            self._has_warned = True
            log.warning(
                "cannot write to the log file %s: %s; records are lost until it is writable",
                self.path,
                error.strerror,
            )


class ProcessLog:
    """The log of this process; `current` is None until a command creates it."""

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
        lines = {LogFormat.TEXT: TextFormatter, LogFormat.JSON: JsonFormatter}[form]
        self._lines: Callable[[bool], logging.Formatter] = lines
        terminal = logging.StreamHandler(stream or sys.stderr)
        terminal.setFormatter(lines(verbose))
        terminal.addFilter(lambda record: verbose or not is_file_only(record))
        self._handlers: list[logging.Handler] = [terminal]
        logging.basicConfig(level=logging.INFO, handlers=self._handlers, force=True)
        logging.captureWarnings(True)
        # py4j would log a line for each call between Python and the JVM.
        logging.getLogger("py4j").setLevel(logging.WARNING)

    def write_to_file(self, path: Path) -> bool:
        """Also write all records to a file; log a warning and return False if this fails."""
        try:
            self.file = LogFile(path)
        except OSError as error:
            log.warning(
                "cannot open the log file %s: %s; records go to the terminal only",
                path,
                error.strerror,
            )
            return False
        self.file.setFormatter(self._lines(True))
        logging.getLogger().addHandler(self.file)
        return True

    def fail(self, text: str, detail: str = "", bug: BaseException | None = None) -> None:
        """Log why the process ends, as its last line; the file has the detail below it.

        The stack trace of a `bug` follows the line, or is a field of the JSON object.
        """
        logging.getLogger(COMMAND).error("%s", text, extra={"detail": detail}, exc_info=bug)


def default_log_path(root: str, name: str) -> Path:
    """Return the path of a process's log file.

    For a root on a local disk it is in the root's folder `_logs`, and for any other root in
    `pipeline.user_folders.state_folder`.
    """
    where = urlparse(root)
    if where.scheme in ("", "file"):
        folder = unquote(where.path) if where.scheme else root
        return Path(folder) / "_logs" / f"{name}.log"
    key = hashlib.sha256(root.rstrip("/").encode()).hexdigest()[:8]
    return state_folder() / f"{name}-{key}.log"
