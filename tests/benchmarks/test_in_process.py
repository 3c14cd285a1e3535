"""Small runs of the benchmarks of batches, in the session of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from group_coordinator.pipeline.bench.groups import bench_groups
from group_coordinator.pipeline.bench.idle import bench_idle
from group_coordinator.pipeline.bench.running import COORDINATOR, FLOOR

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def session_as_it_was(spark: Any) -> Iterator[None]:
    """Gives the session of all tests its settings back, which a bench changes."""
    before = dict(spark.conf.getAll)
    yield
    for key, value in dict(spark.conf.getAll).items():
        if key not in before:
            spark.conf.unset(key)
        elif value != before[key]:
            spark.conf.set(key, before[key])


def test_the_times_of_batches_are_measured(session_as_it_was: None) -> None:
    said: list[str] = []
    groups = bench_groups(1, said.append, groups=20, batches=2)
    idle = bench_idle(1, said.append, idle=(30,), batches=2, state_store="memory", warm_ups=0)
    assert said[0] == "groups: warm-up, floor, 2 batches of 20 groups"
    assert said[-1] == "idle: round 1 of 1, coordinator, 30 idle groups"
    for figures in (groups.floor, groups.coordinator):
        assert figures.batches == 2
        assert figures.batch_ms > figures.add_batch_ms > 0
    assert groups.ratio == groups.coordinator.batch_ms / groups.floor.batch_ms
    assert [(each.machine, each.idle) for each in idle.figures] == [
        (FLOOR, 0),
        (FLOOR, 30),
        (COORDINATOR, 0),
        (COORDINATOR, 30),
    ]
    none, some = idle.figures[2:]
    assert (none.adds_ms, some.adds_ms) == (0, some.batch_ms - none.batch_ms)
    assert idle.title() == "one request a batch, state.store = memory"
