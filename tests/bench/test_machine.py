"""Small runs of the benchmarks of the pure machine."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest

from group_coordinator.pipeline.errors import Failure
from tests.bench import machine
from tests.bench.machine import (
    PLANS,
    MachineGroup,
    bench_machine,
    make_machine,
    run_batch,
)


@pytest.mark.full
def test_every_load_is_measured_beside_its_floor() -> None:
    said: list[str] = []
    report = bench_machine(1, 100, said.append)
    assert [load.name for load in report.loads] == [plan.name for plan in PLANS]
    assert said[0] == "machine: heartbeats, 5 a member, 1 groups of 100"
    for load, plan in zip(report.loads, PLANS, strict=True):
        assert load.groups == max(1, plan.groups // 100)
        assert load.floor_per_second > 0
        assert load.per_second > 0
        assert load.ratio > 1
        assert load.state_bytes > 0


@pytest.mark.parametrize(("count", "ends"), [(0, ["unfreeze"]), (7, [])])
def test_objects_are_frozen_meanwhile_unless_the_program_had_frozen_some(
    count: int, ends: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    calls = {name: partial(called.append, name) for name in ("collect", "freeze", "unfreeze")}
    monkeypatch.setattr(machine, "gc", SimpleNamespace(get_freeze_count=lambda: count, **calls))
    with machine.standing_objects_frozen():
        assert called == ["collect", "freeze"]
    assert called[2:] == ends


def test_a_request_that_is_refused_ends_the_measurement() -> None:
    group = MachineGroup(make_machine(), "g", 2)
    group.form(0)
    group.members[1].generation += 1
    with pytest.raises(Failure, match="g/member-1/3 was answered ILLEGAL_GENERATION"):
        run_batch(group.machine, [group], lambda group, _: group.heartbeats(), 1)
