"""A coordinator as a child process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node.process import CoordinatorProcess


def test_who_is_killed_writes_no_more_and_nor_does_its_jvm(tmp_path: Path) -> None:
    process = CoordinatorProcess(
        str(tmp_path), None, tmp_path / "coordinator.log", module="tests.pipeline.outliving"
    )
    try:
        process.await_ready(timeout_s=60)
    finally:
        process.kill()
    written = (tmp_path / "written").stat().st_size
    time.sleep(0.2)
    assert (tmp_path / "written").stat().st_size == written
    process.kill()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended by SIGKILL"),
        ("import sys; sys.exit('why')", "ended with status 1: why"),
    ],
)
def test_who_waits_for_one_that_ended_is_told_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, words: str
) -> None:
    (tmp_path / "ending.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = CoordinatorProcess(str(tmp_path), None, tmp_path / "coordinator.log", module="ending")
    with pytest.raises(Failure, match=words):
        process.await_ready(timeout_s=60)
    with pytest.raises(Failure, match=words):
        process.check()
