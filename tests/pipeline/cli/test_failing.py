"""How a command ends that fails: in one line, and in one object where the log is JSON."""

from __future__ import annotations

import errno
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from group_coordinator.pipeline.cli import main as command
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.logs import LogFormat, ProcessLog


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Yield the terminal of a command with a JSON log."""
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
    """Return the exit of a command with a verb that raises this error."""

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


def test_a_file_that_is_not_there_is_named_without_the_systems_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["group-coordinator", "run"])
    error = FileNotFoundError(errno.ENOENT, "No such file or directory", "plan.csv")
    told = "group-coordinator: plan.csv: No such file or directory"
    assert ended(error, monkeypatch) == told


# --- simulate -------------------------------------------------------------------------------------


def test_a_bad_line_of_a_scenario_is_named_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    scenario = tmp_path / "scenario.jsonl"
    scenario.write_text('{"advance_to_ms": 5}\nno json\n{"what": 1}\n' + "[" * 100_000 + "\n{}\n")
    monkeypatch.setattr("sys.argv", ["group-coordinator", "simulate", str(scenario)])
    monkeypatch.setattr(command, "hide_pandas", lambda: None)
    with pytest.raises(SystemExit) as end:
        command.main()
    said = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    bad = [each["error"].partition(":")[0] for each in said if "error" in each]
    assert bad == ["line 2", "line 3", "line 4", "line 5"]
    assert [each["ack"] for each in said if "ack" in each] == [1, 2, 3, 4, 5]
    told = "group-coordinator: 4 invalid lines skipped; the first: line 2: JSON is malformed"
    assert str(end.value.code).startswith(told)


def test_a_scenario_that_is_not_there_is_a_wrong_call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["group-coordinator", "simulate", "nothing.jsonl"])
    monkeypatch.setattr(command, "hide_pandas", lambda: None)
    with pytest.raises(SystemExit) as end:
        command.main()
    assert end.value.code == 2
    assert "'nothing.jsonl' does not exist" in capsys.readouterr().err
