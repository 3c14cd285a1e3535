"""The demo's scene of Kafka clients, with the machine in a thread and a table not made by Spark."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from group_coordinator.pipeline.replay import demo_consumers
from group_coordinator.pipeline.replay.demo_consumers import ConsumersScene
from tests.pipeline.small import SmallCoordinator

BROKER = {"group.initial.rebalance.delay.ms": 0}


@pytest.mark.slow
def test_every_row_is_consumed(root: str, tmp_path: Path) -> None:
    out = StringIO()
    coordinator = SmallCoordinator(root, BROKER)
    scene = ConsumersScene(
        root, tmp_path, Console(file=out, width=200), "tests.pipeline.replay.orders_without_spark"
    )
    try:
        scene.begin()
        assert scene.run(lambda: None), out.getvalue()
    finally:
        scene.end()
        coordinator.stop()
    text = out.getvalue()
    for number in (1, 2, 3):
        assert f"consumer {number} assigned" in text
    assert "Spark has appended 5000 rows" in text
    assert "10000 of 10000 rows were consumed: 0 by nobody" in text


def test_without_the_client_the_scene_says_so_and_is_left_out(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_consumers, "CLIENT", "no-such-client")
    out = StringIO()
    scene = ConsumersScene(root, tmp_path, Console(file=out, width=200))
    scene.begin()
    assert scene.run(lambda: None)
    scene.end()
    assert "`pip install no-such-client` brings it" in out.getvalue()
