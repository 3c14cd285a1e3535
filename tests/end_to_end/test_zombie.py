"""A suspended coordinator that resumes after a take-over writes nothing."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.end_to_end.cluster import Cluster
from tests.ends import check_end

# A start takes eight, each partition that comes or goes a few.
MOST_LINES = 40

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(600)]


def is_a_line_for_people(line: str) -> bool:
    return re.match(r"[\d-]{10} [\d:.]{12} (INFO|WARNING) \S", line) is not None


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
    # It finds the same requests and decides them, but its commits are refused.
    for _ in range(5):
        live.ask()
        time.sleep(0.2)
    check_end(zombie.wait(60), zombie.log_path, 1)
    cluster.nodes.pop(node_id).kill()
    fenced = rf"fenced: epoch \d+ of node {node_id} has taken over"
    *before, last = zombie.log_path.read_text().splitlines()
    assert re.match(f"group-coordinator: {fenced}", last)
    # Spark prints a thousand lines about the end of the query; the log file has them.
    assert before and all(is_a_line_for_people(line) for line in before)
    assert len(before) < MOST_LINES
    kept = Path(cluster.root) / "_logs" / f"node-{node_id}.log"
    assert str(kept) in kept.read_text()
    cluster.check()
