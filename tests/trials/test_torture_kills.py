"""Coordinators on Spark are killed under live clients, and every promise holds.

The long run is hundreds of kills: `python -m tests.trials torture --kills 200 --nodes 3`.
"""

from __future__ import annotations

import pytest

from tests.trials.torture.faults import DRIVER, JVM, LOSS, MOVE, PAUSE, READS, WORKER
from tests.trials.torture.run import CHECK, torture

# A check waits until every coordinator is ready: a minute of starts for each check.
FOUR_KILLS = (
    *((JVM,), (MOVE,), (DRIVER,), CHECK),
    # One or both coordinators are paused for longer than their lease. Reads fail, and a running
    # coordinator is killed. The worker comes last, so that its batch fails before the next fault of
    # its node.
    *((PAUSE,), (READS,), (LOSS,), (WORKER,), CHECK),
)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1_800)
def test_every_promise_holds_after_four_kills() -> None:
    report = torture(None, None, print, seed=1, nodes=2, script=FOUR_KILLS)
    assert report.kills == {"driver": 1, "jvm": 1, "worker": 1, "node": 1}
    assert report.others["pause"] == report.others["failing reads"] == 1
    assert (report.checks, report.lost_checkpoints >= 1) == (2, True)
    assert min(report.acknowledged, report.records, report.members) > 0
