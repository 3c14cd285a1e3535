"""A coordinator stands still, another takes over, and the first one wakes up: it writes nothing."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from pipeline.node.process import CoordinatorProcess
from pipeline.tables.store import ensure_tables
from tests.end_to_end.live import LiveFleet, committed_offsets

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_zombie_is_fenced_says_so_and_stops(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    ensure_tables(root)
    config = tmp_path / "c.toml"
    config.write_text('[group]\n"group.initial.rebalance.delay.ms" = 1000\n')
    zombie = CoordinatorProcess(root, config, tmp_path / "zombie.log")
    successor = None
    try:
        zombie.await_ready()
        live = LiveFleet(root)
        live.fleet.form_groups()
        live.ask()
        live.await_all()
        live.ask()
        time.sleep(0.1)
        zombie.pause()
        successor = CoordinatorProcess(root, config, tmp_path / "successor.log", node_id=2)
        successor.await_ready()
        live.ask()
        live.await_all()
        zombie.resume()
        # It finds the same requests, decides them as it must, and is not allowed to say so.
        for _ in range(5):
            live.ask()
            time.sleep(0.2)
        assert zombie.wait(60) == 1
        live.await_all()
    finally:
        zombie.kill()
        if successor is not None:
            assert successor.stop() == 0
    assert re.search(
        r"group-coordinator: fenced: the coordinator of epoch \d+ has taken over from node 1",
        zombie.last_lines(),
    )
    live.listen()
    assert set(live.answers.values()) == {1}, "every request is answered once"
    assert not live.errors
    assert committed_offsets(root) == live.acknowledged
