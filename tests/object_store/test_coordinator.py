"""Coordinators with tables in a store answer each request once, despite faults.

The store refuses requests now and then and loses responses, all the time.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.records.exporter import export
from group_coordinator.pipeline.settings import UpkeepSettings
from group_coordinator.pipeline.tables.store import open_table
from group_coordinator.pipeline.upkeep.compaction import compact
from group_coordinator.pipeline.upkeep.retention import retain
from group_coordinator.schemas.tables import REJECTED_REQUESTS
from tests.end_to_end.cluster import Cluster
from tests.ends import check_end
from tests.object_store.proxy import LOSE_ANSWER, PASS, REFUSE, Asked, Proxy

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]


def unreliable() -> object:
    chance = random.Random(18).random

    def fault(asked: Asked) -> str:
        if asked.verb == "PUT" and asked.key.endswith(".json") and chance() < 0.05:
            return LOSE_ANSWER
        return REFUSE if chance() < 0.02 else PASS

    return fault


@pytest.fixture
def cluster(root: str, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # The location of the streaming checkpoints.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Cluster(tmp_path, tmp_path, root=root)
    try:
        made.begin()
        proxy.fault = unreliable()
        yield made
    finally:
        made.kill()


def test_nothing_is_lost_or_done_twice_in_a_store(
    cluster: Cluster, root: str, proxy: Proxy, tmp_path: Path
) -> None:
    cluster.ask_for(10)
    # After a kill the next start resumes from the streaming checkpoint, which is on the disk.
    cluster.nodes.pop(1).kill()
    state = tmp_path / "state" / "group-coordinator"
    assert len(list(state.glob("*/group-coordinator-1/epoch-*/stream"))) == 1
    cluster.live.ask()
    cluster.start(1)
    cluster.ask_for(10)
    # A second one gets half of the partitions, and takes over all when the first is killed.
    cluster.start(2)
    cluster.ask_for(10)
    cluster.nodes.pop(1).kill()
    cluster.ask_for(10)
    cluster.check()

    proxy.fault = lambda _asked: PASS
    results = retain(root, UpkeepSettings(), clock_ms())
    assert [each.line() for each in results if each.failure is not None] == []
    assert any(each.files_after < each.files_before for each in results), "files were packed"
    compact(root, UpkeepSettings(), clock_ms(), force=True)
    cluster.ask_for(5)
    cluster.check()
    assert export(root, str(tmp_path / "records.jsonl")).records > 0
    assert not open_table(root, REJECTED_REQUESTS).to_pyarrow_table().num_rows
    check_end(cluster.nodes[2].stop(), cluster.nodes[2].log_path)
    cluster.nodes.clear()
