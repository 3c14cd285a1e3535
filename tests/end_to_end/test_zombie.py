"""A coordinator stands still, another takes over, and the first one wakes up: it writes nothing."""

from __future__ import annotations

import re
import time

import pytest

from tests.end_to_end.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_zombie_is_fenced_says_so_and_stops(cluster: Cluster) -> None:
    live = cluster.live
    node_id, zombie = cluster.one()
    live.ask()
    live.await_all()
    live.ask()
    time.sleep(0.1)
    zombie.pause()
    try:
        cluster.start(3 - node_id)
        live.ask()
        live.await_all()
    finally:
        zombie.resume()
    # It finds the same requests, decides them as it must, and is not allowed to say so.
    for _ in range(5):
        live.ask()
        time.sleep(0.2)
    assert zombie.wait(60) == 1
    cluster.nodes.pop(node_id).kill()
    fenced = rf"fenced: the coordinator of epoch \d+ has taken over from node {node_id}"
    assert re.search(f"group-coordinator: {fenced}", zombie.last_lines())
    cluster.check()
