"""A coordinator as a child process."""

from __future__ import annotations

import time
from pathlib import Path

from pipeline.node.process import CoordinatorProcess


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
