"""Small runs of the benchmarks of coordinators that are processes: one start for all."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.bench import (
    answer,
    gateway,
    held,
    nodes,
    rebalance,
    soak,
)
from tests.bench.running import COORDINATOR, FLOOR, running
from tests.pipeline.gateway.kafka_tools.running import jars
from tests.support.kafka_libs import ADVICE

# Packs the tables as often as a soak may.
CONFIG = '[upkeep]\n"retain.interval.ms" = 10000\n'

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def lasting() -> Iterator[Any]:
    """`running` with one floor and one coordinator for all, started side by side."""
    machines = (FLOOR, COORDINATOR)
    with ExitStack() as stack:

        def start(machine: str) -> Any:
            return stack.enter_context(running(machine, CONFIG))

        with ThreadPoolExecutor(len(machines)) as pool:
            there = dict(zip(machines, pool.map(start, machines), strict=True))

        @contextmanager
        def running_once(machine: str, config: str = "", root: str | None = None) -> Iterator[Any]:
            assert root is None
            yield there[machine]

        yield running_once


@pytest.fixture
def one_start(lasting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (answer, gateway, held, rebalance, soak):
        monkeypatch.setattr(module, "running", lasting)

    @contextmanager
    def several(machine: str, count: int) -> Iterator[Any]:
        assert count == 1
        with lasting(machine) as (process, root):
            yield [process], root

    monkeypatch.setattr(nodes, "several", several)


def ignore(_text: str) -> None:
    pass


def test_the_cpu_of_the_nodes_of_a_root_is_measured(one_start: None) -> None:
    report = nodes.bench_nodes(2.0, ignore, nodes=(1,), groups=50, warm_up=1.0, rounds=2)
    floor, one = report.rows()
    assert (floor.machine, one.machine) == (FLOOR, COORDINATOR)
    for each in (floor, one):
        assert each.unanswered == 0
        assert 0 < each.reading_us < each.cpu_us
        # A JVM that has just begun compiles.
        assert 0 < each.compiling_us < each.cpu_us
        assert each.cores > 0
        assert each.batches > 0
    assert [aim.found for aim in report.aims()] == [1.0, 1.0]


@pytest.mark.parametrize("beside_kafka", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_rebalance_is_measured(one_start: None, beside_kafka: bool) -> None:
    said: list[str] = []
    libs = jars() if beside_kafka else None
    report = rebalance.bench_rebalance(1, libs, said.append, members=3, warm_ups=0)
    assert report.coordinator.members == 3
    assert (report.kafka is not None, ADVICE not in said) == (beside_kafka, beside_kafka)
    assert report.table().rows[0][0] == COORDINATOR


@pytest.mark.long
def test_a_gateway_is_measured(one_start: None) -> None:
    load = gateway.Load(warm_up=1, seconds=2, rounds=1, records=1_000, most=100)
    report = gateway.bench_gateway(load, jars(), ignore)
    assert report.kafka is not None
    for figures in (report.gateway, report.kafka):
        assert figures.held == 100
        assert figures.records_per_s > 0
        assert figures.cpu_us > 0
    assert report.written.p50_ms > 0
    assert report.client.p50_ms > 0


@pytest.mark.long
def test_the_members_that_a_root_holds_are_measured(one_start: None) -> None:
    load = held.HeldLoad(heartbeat_s=1.0, step=100, most=200, seconds=2)
    report = held.bench_held([load], 1.0, ignore)
    (found,) = report.rows()
    assert (found.members, found.limit) == (200, "as many as were asked")
    assert (found.heartbeat_s, found.session_s) == (1.0, 45.0)
    assert 150 <= found.per_second <= 200
    assert 0 < found.p50_ms <= found.p99_ms <= 1000 * held.LATE_S
    assert min(found.gateway_us, found.coordinator_us) > 0


def test_answers_are_measured(one_start: None) -> None:
    said: list[str] = []
    report = answer.bench_answer(2, 2, said.append, warm_up=1)
    assert [text.partition(": p50")[0] for text in said] == [
        "answer: starting the floor",
        "answer: starting the coordinator",
        "answer: warm-up 1 of 1, floor",
        "answer: warm-up 1 of 1, coordinator",
        "answer: round 1 of 2, floor",
        "answer: round 1 of 2, coordinator",
        "answer: round 2 of 2, floor",
        "answer: round 2 of 2, coordinator",
    ]
    for figures in (report.floor, report.coordinator):
        assert figures.answers >= 100
        assert figures.unanswered == 0
        assert figures.p99_ms >= figures.p50_ms > 0
        assert 0 < figures.least_p50_ms <= figures.p50_ms <= figures.most_p50_ms
    assert report.ratio_p50 == report.coordinator.p50_ms / report.floor.p50_ms


# A busy machine answers too little for a sixth of half a minute to have percentiles.
@pytest.mark.long
def test_a_soak_is_watched(one_start: None) -> None:
    said: list[str] = []
    report = soak.bench_soak(0.4, said.append, warm_up=1)
    assert report.answers > 0
    assert report.first_p99_ms > 0
    assert report.last_p99_ms > 0
    assert sum(sample.answers for sample in report.samples) <= report.answers
    for sample in report.samples:
        assert sample.memory.jvm > sample.memory.driver > 0
        assert set(sample.files) == {table.name for table in soak.WATCHED}
        assert sample.files["requests"] > 0
    assert len(said) == 1 + len(report.samples) > 3
