"""A coordinator is killed and loses its checkpoint, with live members: the tables suffice."""

from __future__ import annotations

import shutil
import time

import pytest

from group_coordinator.pipeline.node.resumption import checkpoint_uri
from tests.end_to_end.cluster import Cluster
from tests.end_to_end.live import committed_offsets

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_killed_coordinator_without_its_checkpoint_loses_nothing(cluster: Cluster) -> None:
    live = cluster.live
    node_id, process = cluster.one()
    for _ in range(20):
        live.ask()
        live.listen()
        time.sleep(0.1)
    # During traffic: the last requests have no responses yet.
    process.kill()
    acknowledged = dict(live.acknowledged)
    live.ask()
    shutil.rmtree(checkpoint_uri(cluster.root, node_id))
    cluster.start(node_id)
    live.await_all()
    committed = committed_offsets(cluster.root)
    for group_id, offset in acknowledged.items():
        assert committed[group_id] >= offset
    cluster.check()
