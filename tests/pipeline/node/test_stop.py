"""What a start does that is asked to end in its middle."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from group_coordinator.pipeline.logs import ProcessLog
from group_coordinator.pipeline.node import job, stop_signals
from group_coordinator.pipeline.node.stop_signals import StartAborted, StopSignals
from group_coordinator.pipeline.session.jvm_log import JvmLog
from group_coordinator.pipeline.settings import Settings


@pytest.fixture
def stop() -> Iterator[StopSignals]:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    made = StopSignals(JvmLog())
    made.install()
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_is_given_up_at_once(stop: StopSignals, number: int) -> None:
    with pytest.raises(StartAborted):
        os.kill(os.getpid(), number)


def test_but_an_import_is_not_cut_off(stop: StopSignals) -> None:
    seen = []

    def start() -> None:
        with stop.deferred():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            seen.append("imported")

    with pytest.raises(StartAborted):
        start()
    assert seen == ["imported"]


def test_nothing_is_given_up_that_nobody_asks_to_end(stop: StopSignals) -> None:
    with stop.deferred():
        pass
    assert not stop.request.requested.is_set()


@pytest.fixture
def _logs_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    for handler in set(root.handlers) - set(before[0]):
        handler.close()
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    logging.captureWarnings(False)
    ProcessLog.current = None


@pytest.mark.usefixtures("stop", "_logs_as_before")
@pytest.mark.parametrize(
    ("seen", "line"),
    [
        ([7, None], "Spark's JVM has ended: it was killed, or ran out of memory"),
        ([7, 7], "[Errno 111] Connection refused"),
        ([None, None], "[Errno 111] Connection refused"),
    ],
    ids=["it is gone", "it lives", "it is no child"],
)
def test_a_jvm_that_was_killed_is_named(
    seen: list[int | None], line: str, monkeypatch, tmp_path: Path, capsys
) -> None:
    def refused(*_args: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    context = SimpleNamespace(master="local[2]")
    spark = SimpleNamespace(version="4.2.0", sparkContext=context, stop=refused)
    begun = SimpleNamespace(finish=lambda: spark)
    monkeypatch.setattr(job, "SessionStart", lambda *_args, **_named: begun)
    monkeypatch.setattr(job, "check_executors", refused)
    monkeypatch.setattr(stop_signals, "jvm_of", lambda _pid: seen.pop(0))
    assert job.run(str(tmp_path), Settings(), logs=job.Logs(file=tmp_path / "log")) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("group-coordinator: ") and last.endswith(line)
