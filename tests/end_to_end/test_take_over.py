"""A coordinator is killed and its checkpoint lost, under live members: the tables are enough."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from pipeline.node.node import checkpoint_uri
from pipeline.node.process import CoordinatorProcess
from pipeline.tables.store import ensure_tables
from tests.end_to_end.live import LiveFleet, committed_offsets

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_killed_coordinator_without_its_checkpoint_loses_nothing(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    ensure_tables(root)
    config = tmp_path / "c.toml"
    config.write_text('[group]\n"group.initial.rebalance.delay.ms" = 1000\n')
    first = CoordinatorProcess(root, config, tmp_path / "first.log")
    try:
        first.await_ready()
        live = LiveFleet(root)
        live.fleet.form_groups()
        for _ in range(20):
            live.ask()
            live.listen()
            time.sleep(0.1)
    finally:
        # In the midst of it: what was asked last has no answer yet.
        first.kill()
    acknowledged = dict(live.acknowledged)
    live.ask()
    shutil.rmtree(checkpoint_uri(root, 1))
    second = CoordinatorProcess(root, config, tmp_path / "second.log")
    try:
        second.await_ready()
        live.await_all()
        live.ask()
        live.await_all()
    finally:
        assert second.stop() == 0
    live.listen()
    assert set(live.answers.values()) == {1}, "every request is answered once"
    assert not live.errors, "everybody is still a member of the generation it was in"
    committed = committed_offsets(root)
    for group_id, offset in acknowledged.items():
        assert committed[group_id] >= offset
    assert committed == live.acknowledged
