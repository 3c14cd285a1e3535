"""Two coordinators share a root under live traffic: a partition goes to and fro, and one dies."""

from __future__ import annotations

import time

import pytest
from typer.testing import CliRunner

from coordinator.group.partition import partition_for
from pipeline.cli.main import app
from tests.end_to_end.cluster import PARTITIONS, Cluster
from tests.end_to_end.live import LiveFleet
from tests.pipeline.rows import rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


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


@pytest.mark.parametrize("moves", [2, pytest.param(10, marks=pytest.mark.long)])
def test_two_start_at_once_a_partition_goes_to_and_fro_and_its_owner_is_killed(
    new_cluster: Cluster, moves: int
) -> None:
    root, live = new_cluster.root, new_cluster.live
    # Neither has Delta's jars yet, and both would fetch them into one folder.
    new_cluster.start(1, 2)
    # A join that waits while its partition is moved is answered NOT_COORDINATOR.
    await_owners(root, {1, 2}, live)
    live.fleet.form_groups()
    moving = partition_for(live.fleet.groups[0][0].group_id, PARTITIONS)
    for _ in range(moves):
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
    new_cluster.nodes.pop(dead).kill()
    live.ask()
    await_owners(root, {3 - dead}, live)
    new_cluster.check()
