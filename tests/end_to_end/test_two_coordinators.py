"""Two coordinators share a root under live traffic: a partition goes to and fro, and one dies."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coordinator.group.partition import partition_for
from pipeline.cli.main import app
from pipeline.node.process import CoordinatorProcess
from pipeline.tables.store import ensure_tables
from tests.end_to_end.live import LiveFleet, committed_offsets
from tests.pipeline.rows import rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = 2
MOVES = 10
NOT_COORDINATOR = 16
CONFIG = f"""
[group]
group.initial.rebalance.delay.ms = 1000
offsets.topic.num.partitions = {PARTITIONS}
[coordinator]
lease.ms = 8000
[spark]
spark.driver.memory = "1g"
"""


def command(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def owners(root: str) -> dict[int, int]:
    """Who owns which partition: the newest claim or release of each."""
    newest: dict[int, tuple[int, int | None]] = {}
    for row in rows(root, "coordinators"):
        if row["event"] in ("claimed", "released"):
            found = (row["epoch"], row["node_id"] if row["event"] == "claimed" else None)
            newest[row["partition"]] = max(newest.get(row["partition"], found), found)
    return {p: node for p, (_, node) in newest.items() if node is not None}


def await_owners(root: str, expected: set[int], live: LiveFleet) -> None:
    limit = time.monotonic() + 120
    while set(owners(root).values()) != expected or len(owners(root)) < PARTITIONS:
        assert time.monotonic() < limit, owners(root)
        live.listen()
        time.sleep(0.2)


def test_a_partition_goes_to_and_fro_ten_times_and_then_its_owner_is_killed(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    ensure_tables(root)
    config = tmp_path / "c.toml"
    config.write_text(CONFIG)
    nodes = {n: CoordinatorProcess(root, config, tmp_path / f"{n}.log", node_id=n) for n in (1, 2)}
    try:
        nodes[1].await_ready()
        live = LiveFleet(root)
        live.fleet.form_groups()
        nodes[2].await_ready()
        await_owners(root, {1, 2}, live)
        moving = partition_for(live.fleet.groups[0][0].group_id, PARTITIONS)
        for _ in range(MOVES):
            live.ask()
            to = 3 - owners(root)[moving]
            move = ["partitions", "move", str(moving), "--to", str(to), "--timeout", "0"]
            command(*move, "--root", root)
            while owners(root).get(moving) != to:
                live.ask()
                live.listen()
                time.sleep(0.3)
        live.await_all()
        listed = command("partitions", "list", "--root", root, "--json")
        assert listed.count('"node_id":') == PARTITIONS
        # Whoever has it is gone without a word; the other one waits for the lease, and takes over.
        dead = owners(root)[moving]
        nodes[dead].kill()
        live.ask()
        await_owners(root, {3 - dead}, live)
        live.ask()
        live.await_all()
        assert nodes[3 - dead].stop() == 0
    finally:
        for node in nodes.values():
            node.kill()
    live.listen()
    assert set(live.answers.values()) == {1}, "every request is answered once"
    assert not live.errors, "everybody is still a member of the generation it was in"
    assert committed_offsets(root) == live.acknowledged
