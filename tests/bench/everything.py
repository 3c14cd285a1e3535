"""All benchmarks, one after the other, each recorded as by `--record`.

Each runs as a separate command: no benchmark shares a JVM or memory with another one, and the
recorded command is the one that ran. A full run takes an hour and a half, and needs an idle
machine.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from group_coordinator.pipeline.errors import Failure
from tests.bench.answer import AnswerReport
from tests.bench.compaction import CompactionFigures
from tests.bench.gateway import GatewayReport
from tests.bench.held import HeldReport
from tests.bench.machine import MachineReport
from tests.bench.moves import MovesReport
from tests.bench.nodes import NodesReport
from tests.bench.produce import ProduceReport
from tests.bench.rebalance import RebalanceReport
from tests.bench.report import Report
from tests.bench.soak import SoakReport
from tests.bench.start import StartReport
from tests.bench.take_over import TakeOverFigures
from tests.bench.topic_reads import TopicReadsReport
from tests.bench.verbs import VerbsReport
from tests.bench.views import ViewsReport

COMMAND = "python -m tests.bench"


class Plan(NamedTuple):
    """A benchmark's name, its report, and its options: of a quick run, of a full one, of both."""

    name: str
    report: type[Report]
    quick: str
    full: str = ""
    always: str = ""

    def command(self, quick: bool) -> list[str]:
        """Return the words of the command line after `python -m tests.bench`."""
        return f"{self.name} {self.always} {self.quick if quick else self.full}".split()

    def what(self) -> str:
        """Return the description of the benchmark: the first paragraph of its module."""
        module = sys.modules[self.report.__module__]
        return " ".join((inspect.getdoc(module) or "").partition("\n\n")[0].split())


_SMALL = "--seconds 5 --warm-up 5"
PLANS = (
    Plan("machine", MachineReport, "--batches 1 --scale 100"),
    Plan("nodes", NodesReport, f"{_SMALL} --rounds 1 --nodes 1 --groups 50"),
    Plan("moves", MovesReport, "--seconds 4 --windows 1 --warm-up 5 --kind moves"),
    Plan("verbs", VerbsReport, "--groups 20 --runs 1"),
    Plan("answer", AnswerReport, f"{_SMALL} --rounds 1"),
    Plan("gateway", GatewayReport, f"{_SMALL} --rounds 1 --records 1000 --most 100"),
    Plan("produce", ProduceReport, "--records 1000 --partitions 6 --processes 1"),
    Plan("held", HeldReport, "--heartbeat 3 --seconds 3 --warm-up 5 --most 200"),
    Plan("rebalance", RebalanceReport, "--rounds 1 --members 10"),
    Plan("start", StartReport, "--rounds 1"),
    Plan("take-over", TakeOverFigures, "--records 2000 --groups 20"),
    Plan("views", ViewsReport, "--records 100000"),
    Plan("topic-reads", TopicReadsReport, "--records 20000 --rounds 1"),
    Plan("compaction", CompactionFigures, "--records 100000 --keys 10000"),
    Plan("soak", SoakReport, "--minutes 0.5 --warm-up 5", full="--minutes 30"),
)


def bench_all(
    quick: bool,
    say: Callable[[str], None],
    libs: Path | None = None,
    plans: Sequence[Plan] = PLANS,
) -> list[str]:
    """Run every plan and record its report, except in a quick run; return the failed commands.

    `say` reports progress and the result of each aim. A failed benchmark does not prevent the next
    ones from running. `libs` is the folder of Kafka's jars.
    """
    failed = []
    for number, plan in enumerate(plans):
        words = plan.command(quick)
        say(f"{number + 1} of {len(plans)}: {' '.join(words)}")
        began = time.monotonic()
        try:
            printed = _run([*words, "--json", *([] if quick else ["--record"])], say, libs)
            for aim in msgspec.json.decode(printed, type=plan.report).aims():
                say("{}: {}, {}".format(*aim.words()))
        except Failure as error:
            say(f"failed: {error}")
            failed.append(" ".join([COMMAND, *words]))
        say(f"{plan.name} took {time.monotonic() - began:.0f} s")
    return failed


def _run(words: list[str], say: Callable[[str], None], libs: Path | None) -> str:
    """Run a command; return the last line that it prints. `say` hears its standard error."""
    environment = dict(os.environ)
    if libs is not None:
        environment["GROUP_COORDINATOR_KAFKA_LIBS"] = str(libs)
    last = ""
    with tempfile.TemporaryFile("w+") as output:
        with subprocess.Popen(
            [sys.executable, "-m", "tests.bench", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    last = line.strip() or last
                    say(line.rstrip())
            except KeyboardInterrupt:
                # The process ends its children first, and `Popen` waits for it.
                process.terminate()
                raise
        if process.returncode:
            raise Failure(last or f"exit status {process.returncode}")
        output.seek(0)
        return (output.read().splitlines() or [""])[-1]
