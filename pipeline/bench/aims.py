"""What each benchmark is to reach, and whether a run did."""

from __future__ import annotations

from functools import singledispatch

from msgspec import Struct

from pipeline.bench.answer import AnswerReport
from pipeline.bench.commit import CommitReport
from pipeline.bench.compaction import CompactionFigures
from pipeline.bench.groups import GroupsReport
from pipeline.bench.idle import IdleReport
from pipeline.bench.machine import MachineReport
from pipeline.bench.rebalance import RebalanceReport
from pipeline.bench.running import COORDINATOR
from pipeline.bench.soak import SoakReport
from pipeline.bench.take_over import TakeOverFigures
from pipeline.bench.throughput import ThroughputReport


class Aim(Struct):
    """A bound on one figure. `most` tells an upper bound from a lower one."""

    figure: str
    unit: str
    bound: float
    found: float
    most: bool = True

    @property
    def met(self) -> bool:
        """Whether the figure keeps to its bound."""
        return self.found <= self.bound if self.most else self.found >= self.bound

    def line(self) -> str:
        """The aim in words."""
        sign = "<=" if self.most else ">="
        unit = f" {self.unit}" if self.unit else ""
        outcome = "met" if self.met else "missed"
        return f"{self.figure} {sign} {_number(self.bound)}{unit}: {_number(self.found)}, {outcome}"


def _number(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}"


@singledispatch
def aims_of(_report: Struct) -> list[Aim]:
    """The aims of a benchmark with what a run found; none for one that only informs."""
    return []


@aims_of.register
def _answer(report: AnswerReport) -> list[Aim]:
    return [
        Aim("p50", "ms", 200, report.coordinator.p50_ms),
        Aim("p99", "ms", 500, report.coordinator.p99_ms),
        Aim("p50 over the floor's", "", 1.2, report.ratio_p50),
        Aim("p99 over the floor's", "", 1.2, report.ratio_p99),
    ]


@aims_of.register
def _throughput(report: ThroughputReport) -> list[Aim]:
    if report.kafka is None:
        return []
    share = report.coordinator.per_second / report.kafka.per_second
    return [Aim("heartbeats/s over the broker's", "", 2, share, most=False)]


@aims_of.register
def _groups(report: GroupsReport) -> list[Aim]:
    return [
        Aim("a batch over the floor's", "", 1.15, report.ratio),
        Aim("a batch over the storing floor's", "", 1.15, report.ratio_storing),
    ]


@aims_of.register
def _rebalance(report: RebalanceReport) -> list[Aim]:
    ours = report.coordinator
    return [
        Aim("from nothing", "batches", 4, ours.first_join_batches),
        Aim("one more", "batches", 4, ours.one_more_batches),
    ]


@aims_of.register
def _commit(report: CommitReport) -> list[Aim]:
    aims = []
    for a_batch in sorted({figures.a_batch for figures in report.figures}):
        costs = {f.held: 1 / f.per_second for f in report.figures if f.a_batch == a_batch}
        least, most = min(costs), max(costs)
        name = f"a commit's cost with {most:,} offsets held over {least:,}, {a_batch} a batch"
        aims.append(Aim(name, "", 2, costs[most] / costs[least]))
    return aims


@aims_of.register
def _idle(report: IdleReport) -> list[Aim]:
    ours = [figures for figures in report.figures if figures.machine == COORDINATOR]
    most = max(ours, key=lambda figures: figures.idle)
    return [Aim(f"{most.idle:,} idle groups add", "ms", 150, most.adds_ms)]


@aims_of.register
def _machine(report: MachineReport) -> list[Aim]:
    return [Aim(report.loads[0].name, "a second", 200_000, report.loads[0].per_second, most=False)]


@aims_of.register
def _soak(report: SoakReport) -> list[Aim]:
    return [
        Aim("p99 of the last sixth over the first's", "", 1.2, report.ratio_p99),
        Aim("growth of the driver's Python", "", 1.1, report.driver_growth),
        Aim("growth of its JVM", "", 1.1, report.jvm_growth),
        Aim("growth of the files of a table", "", 1.2, report.files_growth),
    ]


@aims_of.register
def _take_over(figures: TakeOverFigures) -> list[Aim]:
    return [Aim("a start over the floor's", "", 1.5, figures.ratio)]


@aims_of.register
def _compaction(figures: CompactionFigures) -> list[Aim]:
    return [Aim("seconds over the floor's", "", 1.5, figures.ratio)]
