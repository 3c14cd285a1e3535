"""The verbs `ui`, `report` and `watch` as the command starts them."""

from __future__ import annotations

import builtins
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.errors import CannotListen, Failure
from group_coordinator.pipeline.ui.server import NotLoopback, serve
from tests.ends import check_end
from tests.pipeline.offsets_log import Log, commit

pytestmark = pytest.mark.full

GOLDEN = str(Path(__file__).parents[2] / "golden" / "0.1.0" / "root")


def run(*arguments: str) -> str:
    done = CliRunner().invoke(make_app(), [*arguments, "--root", GOLDEN], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_a_report_is_one_file_that_loads_nothing(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    assert "written to" in run("report", "stable", "--out", str(file))
    written = file.read_text("utf-8")
    assert "Generation 1" in written
    assert not re.findall('<script|<link|<img| href="/| src=|url\\(', written)
    assert "default-src 'none'; style-src 'sha256-" in written


def test_a_report_of_nobody_is_refused() -> None:
    with pytest.raises(Failure, match="there is no group 'nobody'"):
        run("report", "nobody")


def test_watch_shows_all_groups_once_or_one_of_them() -> None:
    shown = run("watch", "--once")
    assert re.search(r"stable\s+Stable", shown)
    assert "groups" in shown
    assert "generation 2, 2 members" in run("watch", "stable", "--once")
    with pytest.raises(Failure, match="there is no group 'nobody'"):
        run("watch", "nobody", "--once")


def test_watch_goes_on_until_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def interrupted(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks > 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("group_coordinator.pipeline.ui.watch.sleep", interrupted)
    assert "stable" in run("watch", "--every", "0.5")
    assert looks == 3


def test_changes_are_refused_where_others_would_read_the_key() -> None:
    with pytest.raises(NotLoopback, match="only on a loopback address"):
        serve(GOLDEN, ("0.0.0.0", 0), allow_changes=True)


def test_an_address_that_is_taken_is_named() -> None:
    with pytest.raises(CannotListen, match=r"cannot listen on 192\.0\.2\.1:80"):
        serve(GOLDEN, ("192.0.2.1", 80))


def test_without_the_extra_the_verb_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("group_coordinator.pipeline.ui.server"):
            raise ModuleNotFoundError("no", name="uvicorn")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Failure, match=r"pip install 'jinja2>=3\.1' 'starlette"):
        run("ui")


def test_the_server_starts_answers_and_ends_in_order(root: str) -> None:
    Log(root).append(commit("a group", 1, 5))
    command = [
        sys.executable,
        "-m",
        "group_coordinator",
        "ui",
        "--root",
        root,
        "--listen",
        "127.0.0.1:0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        said = server.stderr.readline()
        (address,) = re.findall(r"ui: (http://127\.0\.0\.1:\d+/) shows", said)
        with urlopen(address, timeout=30) as answer:
            assert b"a group" in answer.read()
        server.send_signal(signal.SIGTERM)
        check_end(server.wait(30), said := server.stderr.read())
        assert said == "ui: stopped\n"
