"""The demo's scene of workers, with the machine in a thread: processes, one killed, one added."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from group_coordinator.pipeline.replay import demo_workers
from group_coordinator.pipeline.replay.demo_workers import WorkersScene, recorded_rows
from tests.pipeline.small import SmallCoordinator

BROKER = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1_000}


def test_every_recorded_request_is_a_row_with_a_name_of_its_own() -> None:
    rows = recorded_rows()
    assert len({row["id"] for row in rows}) == len(rows) > 1_000


@pytest.mark.slow
def test_no_row_is_put_out_by_nobody(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick: dict[str, Any] = {
        "session.timeout.ms": 2_000,
        "heartbeat.interval.ms": 200,
        "auto.commit.interval.ms": 200,
    }
    monkeypatch.setattr(demo_workers, "_SETTINGS", quick)
    monkeypatch.setattr(demo_workers, "_EVERY_S", 0.05)
    monkeypatch.setattr(demo_workers, "_CHUNKS", 15)
    out = StringIO()
    coordinator = SmallCoordinator(root, BROKER)
    try:
        scene = WorkersScene(root, tmp_path, Console(file=out, width=200))
        assert scene.run(lambda: None), out.getvalue()
    finally:
        coordinator.stop()
    text = out.getvalue()
    assert "worker 2 is killed" in text
    assert "worker 4 assigned" in text
    assert "0 by nobody" in text
