"""Two coordinators share a root under live traffic.

A partition moves in both directions. One coordinator is stopped and started again, and one is
killed.
"""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.pipeline.cli.main import make_app
from tests.end_to_end.cluster import PARTITIONS, Cluster
from tests.end_to_end.live import LiveFleet
from tests.ends import check_end
from tests.pipeline.rows import rows
from tests.waiting import wait_until

DECISIONS = "coordinators"
pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(900)]


def command(*words: str) -> str:
    result = CliRunner().invoke(make_app(), list(words))
    assert result.exit_code == 0, result.output
    return result.output


def owners(root: str) -> dict[int, int]:
    """Return the owners of the partitions: the newest claim or release of each."""
    newest: dict[int, tuple[int, int | None]] = {}
    for row in rows(root, DECISIONS):
        if row["event"] in ("claimed", "released"):
            found = (row["epoch"], row["node_id"] if row["event"] == "claimed" else None)
            newest[row["partition"]] = max(newest.get(row["partition"], found), found)
    return {p: node for p, (_, node) in newest.items() if node is not None}


def await_owners(root: str, expected: set[int], live: LiveFleet) -> None:
    def are_owners() -> bool:
        found = owners(root)
        return set(found.values()) == expected and len(found) == PARTITIONS

    wait_until(lambda: owners(root), are_owners, 120, meanwhile=live.listen, every_s=0.2)


def ask_and_listen(live: LiveFleet) -> None:
    live.ask()
    live.listen()


def stop_and_start(cluster: Cluster, node_id: int) -> None:
    """Stop a node in order, and start it again; members send requests all the time."""
    process = cluster.nodes[node_id]
    process.ask_to_stop()
    wait_until("it ends", process.has_ended, 120, lambda: ask_and_listen(cluster.live), 0.1)
    check_end(process.wait(0), process.log_path)
    events = [(row["epoch"], row["event"], row["node_id"]) for row in rows(cluster.root, DECISIONS)]
    (stopping,) = (epoch for epoch, event, node in events if (event, node) == ("stopping", node_id))
    (stopped,) = (epoch for epoch, event, node in events if (event, node) == ("stopped", node_id))
    released = [epoch for epoch, event, node in events if (event, node) == ("released", node_id)]
    assert stopping < max(released) < stopped
    assert set(owners(cluster.root).values()) <= {3 - node_id}, "nothing was its own any more"
    cluster.start(node_id)


@pytest.mark.parametrize("moves", [2, pytest.param(10, marks=pytest.mark.long)])
def test_two_start_at_once_a_partition_goes_to_and_fro_and_its_owner_is_stopped_and_killed(
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
        wait_until(
            f"{moving} is moved to {to}",
            lambda to=to: owners(root).get(moving) == to,  # type: ignore[misc]
            120,
            lambda: ask_and_listen(live),
            0.3,
        )
    live.await_all()
    listed = command("partitions", "list", "--root", root, "--format", "json")
    assert listed.count('"node_id":') == PARTITIONS
    stop_and_start(new_cluster, owners(root)[moving])
    live.await_all()
    # The owner was killed; the other coordinator waits for its lease, and takes over.
    dead = owners(root)[moving]
    new_cluster.nodes.pop(dead).kill()
    live.ask()
    await_owners(root, {3 - dead}, live)
    new_cluster.check()
