"""Every benchmark as `bench all` runs it: in full, and as small as it can be and still run."""

from __future__ import annotations

import importlib
import inspect

from msgspec import Struct

from pipeline.bench.answer import AnswerReport
from pipeline.bench.commit import CommitReport
from pipeline.bench.compaction import CompactionFigures
from pipeline.bench.groups import GroupsReport
from pipeline.bench.idle import IdleReport
from pipeline.bench.linger import LingerReport
from pipeline.bench.machine import MachineReport
from pipeline.bench.producer import ProducerFigures
from pipeline.bench.rebalance import RebalanceReport
from pipeline.bench.soak import SoakReport
from pipeline.bench.take_over import TakeOverFigures
from pipeline.bench.throughput import ThroughputReport


class Plan(Struct, frozen=True):
    """A benchmark's name, what it reports, and its options for a full run and for a quick one."""

    name: str
    report: type[Struct]
    full: str
    quick: str

    def command(self, quick: bool) -> list[str]:
        """The words of the command line after `group-coordinator`."""
        return ["bench", self.name, *(self.quick if quick else self.full).split()]

    def what(self) -> str:
        """What it measures: the first paragraph of its module."""
        module = importlib.import_module(f"pipeline.bench.{self.name.replace('-', '_')}")
        return " ".join((inspect.getdoc(module) or "").partition("\n\n")[0].split())


PLANS = (
    Plan("machine", MachineReport, "", "--batches 1 --scale 100"),
    Plan("commit", CommitReport, "", "--batches 10"),
    Plan("producer", ProducerFigures, "", "--seconds 0.5"),
    Plan("answer", AnswerReport, "", "--seconds 5 --rounds 1 --warm-up 5"),
    Plan("linger", LingerReport, "--seconds 30", "--seconds 3 --warm-up 5"),
    Plan(
        "throughput",
        ThroughputReport,
        "",
        "--seconds 5 --warm-up 5 --groups 5 --members 10",
    ),
    Plan("groups", GroupsReport, "", "--rounds 1 --groups 100 --batches 3"),
    Plan("rebalance", RebalanceReport, "", "--rounds 1 --members 10"),
    Plan("idle", IdleReport, "", "--rounds 1 --idle 500 --batches 3"),
    Plan(
        "idle",
        IdleReport,
        "--state-store memory",
        "--state-store memory --rounds 1 --idle 500 --batches 3",
    ),
    Plan("take-over", TakeOverFigures, "", "--records 2000 --groups 20"),
    Plan("compaction", CompactionFigures, "", "--records 100000 --keys 10000"),
    Plan("soak", SoakReport, "--minutes 30", "--minutes 0.5 --warm-up 5"),
)
