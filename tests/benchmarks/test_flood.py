"""The load of `bench throughput`: every member heartbeats anew as soon as it is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_coordinator.pipeline.bench.fleet import Fleet
from group_coordinator.pipeline.bench.flood import TableFlood
from group_coordinator.pipeline.bench.rebalance import form
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.tables.store import ensure_tables
from tests.pipeline.small import SmallCoordinator


class Running:
    """A coordinator that never ends."""

    def check(self) -> None:
        pass


@pytest.mark.slow
def test_every_heartbeat_is_answered_once(tmp_path: Path) -> None:
    root = str(tmp_path)
    ensure_tables(root)
    fleet = Fleet(root, 2, 3, "flood")
    coordinator = SmallCoordinator(root, {"group.initial.rebalance.delay.ms": 0})
    try:
        form(fleet)
        per_second = TableFlood(fleet).run(0.5, Running())
    finally:
        coordinator.stop()
    asked = "SELECT count(*), count(DISTINCT request_id) FROM responses WHERE request_id LIKE '_/%'"
    ((answers, requests),) = Catalog(root).query(asked).rows
    assert answers == requests
    assert answers >= len(fleet.members)
    # Answers to what was under way when the time was over do not count.
    assert per_second <= answers / 0.5
