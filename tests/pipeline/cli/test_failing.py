"""How a command ends that fails: in one line, and in one object where the log is JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from group_coordinator.pipeline.cli import main as command
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.logs import LogFormat, ProcessLog


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """The terminal of a command whose log is JSON."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    terminal = io.StringIO()
    ProcessLog(LogFormat.JSON, stream=terminal)
    monkeypatch.setattr("sys.argv", ["group-coordinator", "run"])
    yield terminal
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    ProcessLog.current = None


def ended(error: Exception, monkeypatch: pytest.MonkeyPatch) -> object:
    """What the command exits with whose verb raises this."""

    def raising(verb: str | None = None) -> None:
        raise error

    monkeypatch.setattr(command, "make_app", raising)
    with pytest.raises(SystemExit) as end:
        command.main()
    return end.value.code


def test_a_failure_is_one_object(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ended(Failure("there is no root"), monkeypatch) == 1
    (line,) = terminal.getvalue().splitlines()
    said = json.loads(line)
    assert (said["level"], said["message"]) == ("ERROR", "there is no root")
    assert "trace" not in said


def test_a_bug_is_one_object_with_its_trace(
    terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ended(RuntimeError("a bug"), monkeypatch) == 1
    (line,) = terminal.getvalue().splitlines()
    said = json.loads(line)
    assert said["message"] == "RuntimeError: a bug"
    assert "in raising" in said["trace"]


def test_without_json_a_bug_has_pythons_own_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["group-coordinator", "run"])

    def raising(verb: str | None = None) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(command, "make_app", raising)
    with pytest.raises(RuntimeError, match="a bug"):
        command.main()
