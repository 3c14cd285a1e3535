"""Small runs of the benchmarks of the pure machine."""

from __future__ import annotations

import platform
from functools import partial
from types import SimpleNamespace

import pytest

from group_coordinator.pipeline.bench import machine
from group_coordinator.pipeline.bench.allocator import allocate_as_workers_do
from group_coordinator.pipeline.bench.commit import bench_commit
from group_coordinator.pipeline.bench.machine import (
    PLANS,
    MachineGroup,
    bench_machine,
    make_machine,
    run_batch,
)
from group_coordinator.pipeline.errors import Failure


@pytest.mark.slow
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


def test_memory_is_got_as_workers_get_it_where_there_is_glibc() -> None:
    assert allocate_as_workers_do() == (platform.libc_ver()[0] == "glibc")


def test_commits_are_measured_by_what_the_group_holds() -> None:
    report = bench_commit(10, lambda _text: None, held=(10, 1_000))
    assert [(f.held, f.a_batch) for f in report.figures] == [
        (10, 1),
        (10, 100),
        (1_000, 1),
        (1_000, 100),
    ]
    small, _, large, _ = report.figures
    assert large.state_bytes > small.state_bytes + 1_000 * 15
    assert all(figures.per_second > 0 for figures in report.figures)
