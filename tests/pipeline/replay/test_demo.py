"""The demo's conversations, with the machine in a thread, and its command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.interrupt import interrupted_by_signals
from group_coordinator.pipeline.node import process
from group_coordinator.pipeline.replay import demo
from group_coordinator.pipeline.replay.demo import Demo, difference
from tests.ends import check_end
from tests.pipeline.small import SmallCoordinator
from tests.waiting import wait_until

# Conversations of less than a second.
QUICK = ["i01-wrong-member-id", "i05-unknown-group", "i11-offset-delete-subscribed"]
BROKER = {"group.initial.rebalance.delay.ms": 0}


@pytest.mark.full
@pytest.mark.parametrize(
    ("names", "total", "told"),
    [
        (QUICK, 85, ""),
        pytest.param(
            ["a-kafka-python-one"],
            39,
            "PreparingRebalance -> CompletingRebalance",
            marks=pytest.mark.long,
        ),
    ],
)
def test_every_request_is_answered_as_the_broker_did(
    tmp_path: Path, names: list[str], total: int, told: str
) -> None:
    out = StringIO()
    scene = Demo(tmp_path, Console(file=out, width=200), verbose=True, names=names)
    scene.prepare()
    coordinator = SmallCoordinator(str(tmp_path / "root"), BROKER)
    try:
        assert scene.replay_traces(lambda: None), out.getvalue()
    finally:
        coordinator.stop()
    text = out.getvalue()
    assert f"{len(names)} recorded conversations, {total} requests of real clients" in text
    assert told in text
    assert f"{total} of {total} answers equal the real broker's; {total} answered" in text


def test_a_coordinator_that_ends_ends_the_demo(tmp_path: Path) -> None:
    scene = Demo(tmp_path, Console(file=StringIO()), names=QUICK)
    scene.prepare()

    def has_ended() -> None:
        raise Failure("the coordinator ended")

    with pytest.raises(Failure, match="the coordinator ended"):
        scene.replay_traces(has_ended)


def test_an_answer_that_differs_is_told_in_a_line() -> None:
    recorded = {"request_id": "a/1", "api": "heartbeat", "error": "NONE", "heartbeat": {"x": 1}}
    other = {**recorded, "error": "UNKNOWN_MEMBER_ID"}
    assert difference(recorded, other) == (
        "a/1 heartbeat: the broker answered NONE, the coordinator UNKNOWN_MEMBER_ID"
    )
    assert difference(recorded, {**recorded, "heartbeat": {}}) == "a/1 heartbeat: differs in x"


@pytest.mark.full
def test_told_to_end_while_a_coordinator_is_started_it_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process exists, and its starter does not know its id yet."""

    class Told(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(process.subprocess, "Popen", Told)
    scene = Demo(tmp_path, Console(file=StringIO()), names=QUICK)
    with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
        scene.run()
    assert at_work(tmp_path / "root") == []


@pytest.mark.full
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_ends_its_coordinator(tmp_path: Path, told: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "group_coordinator", "demo", "--keep", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as demo_of_ours:
        try:
            wait_until("a coordinator starts", lambda: at_work(tmp_path / "root"))
            demo_of_ours.send_signal(told)
            _, said = demo_of_ours.communicate(timeout=120)
        finally:
            demo_of_ours.kill()
    check_end(demo_of_ours.returncode, said.decode(), 130)
    assert at_work(tmp_path / "root") == []


def at_work(root: Path) -> list[str]:
    """The command lines of the processes that work on a root."""
    commands = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            commands.append(each.read_text("utf-8", "replace"))
    return [command for command in commands if str(root) in command]


@pytest.mark.parametrize("went_well", [False, True])
def test_the_command_fails_if_the_demo_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, went_well: bool
) -> None:
    asked: list[object] = []

    def run(*options: object) -> bool:
        asked.extend(options)
        return went_well

    monkeypatch.setattr(demo, "run_demo", run)
    done = CliRunner().invoke(make_app(), ["demo", "--keep", str(tmp_path), "--verbose"])
    assert asked == [tmp_path, True]
    assert isinstance(done.exception, Failure) is not went_well
