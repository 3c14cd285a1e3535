"""A process's log: lines for people or for machines, and a file with all messages."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from group_coordinator.pipeline.logs import COMMAND, LogFormat, ProcessLog, default_log_path
from group_coordinator.pipeline.quoting import quoted_text

ours = logging.getLogger("group_coordinator.pipeline.node.node")
spark = logging.getLogger("spark.Cleaner")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Restore the root logger, which pytest uses, at the end."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    ProcessLog.current = None


@pytest.fixture
def terminal() -> io.StringIO:
    return io.StringIO()


def test_a_line_for_people_has_the_time_the_level_and_the_message(terminal: io.StringIO) -> None:
    ProcessLog(stream=terminal)
    ours.info("claimed %d partitions", 50)
    spark.warning("slow", extra={"detail": "a stack trace"})
    first, second = terminal.getvalue().splitlines()
    assert first[23:] == " INFO claimed 50 partitions"
    assert second[23:] == " WARNING spark.Cleaner: slow"


def test_a_line_for_machines_is_a_json_object_with_the_record_s_fields(
    terminal: io.StringIO,
) -> None:
    ProcessLog(LogFormat.JSON, stream=terminal)
    ours.warning("node %d is gone", 2, extra={"node_id": 2})
    said = json.loads(terminal.getvalue())
    assert said.pop("ts").endswith("Z")
    assert said == {
        "level": "WARNING",
        "logger": "group_coordinator.pipeline.node.node",
        "message": "node 2 is gone",
        "node_id": 2,
    }


def test_json_has_one_line_for_a_failure_with_its_trace(terminal: io.StringIO) -> None:
    ProcessLog(LogFormat.JSON, stream=terminal)
    try:
        raise LookupError("no\nsuch luck")
    except LookupError:
        ours.exception("upkeep failed")
    (line,) = terminal.getvalue().splitlines()
    assert "LookupError: no\nsuch luck" in json.loads(line)["trace"]


@pytest.mark.parametrize("verbose", [False, True])
def test_what_asks_nothing_of_anybody_is_kept_from_the_terminal_but_not_from_the_file(
    terminal: io.StringIO, tmp_path: Path, verbose: bool
) -> None:
    process_log = ProcessLog(verbose=verbose, stream=terminal)
    path = tmp_path / "_logs" / "node-1.log"
    assert process_log.write_to_file(path)
    spark.error("cut off", extra={"file_only": True, "detail": "java.lang.StackOverflowError"})
    logging.getLogger("py4j.clientserver").error("There was an exception")
    logging.getLogger("somebody").info("listening")
    for line in ("cut off", "java.lang.StackOverflowError", "There was an exception", "listening"):
        assert (line in terminal.getvalue()) is verbose
        assert line in path.read_text()


def test_what_py4j_logs_by_the_root_s_logger_is_raised_as_well(terminal: io.StringIO) -> None:
    ProcessLog(stream=terminal)
    root = logging.getLogger()
    said = "Exception while sending command."
    at = "/env/lib/python3.11/site-packages/py4j/java_gateway.py"
    root.handle(root.makeRecord("root", logging.ERROR, at, 1055, said, (), None))
    assert terminal.getvalue() == ""
    root.handle(root.makeRecord("root", logging.ERROR, "/env/their.py", 1, said, (), None))
    assert said in terminal.getvalue()


def test_an_error_that_nobody_put_aside_is_told(terminal: io.StringIO) -> None:
    ProcessLog(stream=terminal)
    logging.getLogger("somebody").warning("the certificate expires")
    assert "somebody: the certificate expires" in terminal.getvalue()


def test_a_failure_is_the_command_s_last_line(terminal: io.StringIO) -> None:
    ProcessLog(stream=terminal).fail("fenced: epoch 2")
    assert terminal.getvalue() == f"{COMMAND}: fenced: epoch 2\n"


def test_a_failure_for_machines_is_json(terminal: io.StringIO) -> None:
    ProcessLog(LogFormat.JSON, stream=terminal).fail("fenced: epoch 2")
    said = json.loads(terminal.getvalue())
    assert (said["level"], said["message"]) == ("ERROR", "fenced: epoch 2")


def test_a_file_that_cannot_be_made_ends_nothing(terminal: io.StringIO, tmp_path: Path) -> None:
    process_log = ProcessLog(stream=terminal)
    (tmp_path / "_logs").write_text("in the way")
    assert not process_log.write_to_file(tmp_path / "_logs" / "node-1.log")
    ours.info("goes on")
    assert "cannot open the log file" in terminal.getvalue()
    assert "goes on" in terminal.getvalue()


def test_a_full_disk_is_told_once(
    terminal: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_log = ProcessLog(stream=terminal)
    assert process_log.write_to_file(tmp_path / "node-1.log")

    def refuse(_: object) -> bool:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(process_log.file, "shouldRollover", refuse)
    ours.info("first")
    ours.info("second")
    said = terminal.getvalue()
    assert said.count("No space left on device") == 1
    assert "second" in said


def test_the_file_lies_beside_the_tables_or_in_the_user_s_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_log_path("/data/g", "node-1") == Path("/data/g/_logs/node-1.log")
    assert default_log_path("file:///data/a%20b", "node-1") == Path("/data/a b/_logs/node-1.log")
    stored = default_log_path("s3a://bucket/g", "node-1")
    assert stored.parent == Path("/state/group-coordinator")
    assert (
        stored
        == default_log_path("s3a://bucket/g/", "node-1")
        != default_log_path("s3a://b", "node-1")
    )


HOSTILE = "x\n2026-01-01 00:00:00.000 WARNING forged\r\x1b[2J\x9b"


def test_a_text_from_outside_writes_no_line_of_its_own(terminal: io.StringIO) -> None:
    ProcessLog(stream=terminal)
    ours.warning("topic %s: %s", HOSTILE, ValueError(HOSTILE))
    (line,) = terminal.getvalue().splitlines()
    assert line.isprintable()
    assert line.count("\\n2026-01-01") == 2


def test_a_line_has_a_bounded_length(terminal: io.StringIO) -> None:
    for form in LogFormat:
        ProcessLog(form, stream=terminal)
        ours.warning("topic %s", "\x1b" * 10_000_000)
    first, second = terminal.getvalue().splitlines()
    assert len(first) < 4_100
    assert len(json.loads(second)["message"]) == 4_000


def test_no_line_of_a_trace_looks_like_a_record(terminal: io.StringIO) -> None:
    ProcessLog(stream=terminal)
    try:
        raise LookupError(HOSTILE)
    except LookupError:
        ours.exception("upkeep failed")
    _, *below = terminal.getvalue().splitlines()
    assert all(line.startswith("  ") and line.isprintable() for line in below)


def test_a_text_from_outside_is_cut_to_200_characters() -> None:
    assert quoted_text("short") == "short"
    assert quoted_text("x" * 200) == "x" * 200
    assert quoted_text("x" * 201) == "x" * 197 + "..."
    assert len(quoted_text("\n" * 10_000_000)) == 200
    assert quoted_text(ValueError("a\nb")) == "a\\nb"
