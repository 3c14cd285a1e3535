"""How long a verb takes, the whole process, beside Python doing nothing.

The groups have all their offsets in a log that was never compacted, which is the most that a verb
reads of so many. The fastest of the runs counts: the others waited for the machine.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Annotated

from msgspec import Struct

from pipeline.bench.offsets_log import group_names, write_log
from pipeline.bench.report import Aim, Column, Report
from pipeline.clock import clock_ms
from pipeline.errors import Failure
from pipeline.tables.store import ensure_tables

# The bounds of the issue of a fast command line, s: of up to 1,000 groups, and of 100,000.
_FEW_GROUPS, _FEW_S, _MANY_S = 1_000, 0.5, 1.5
_PASS = "python -c pass"


class VerbFigures(Struct, frozen=True):
    """A command, and its fastest and slowest run, s."""

    command: Annotated[str, Column("command")]
    best_s: Annotated[float, Column("s", ".2f", bar="fastest")]
    worst_s: Annotated[float, Column("slowest s", ".2f")]


class VerbsReport(Report):
    """The figures of one run: Python alone, then each verb."""

    groups: int
    offsets: int
    figures: list[VerbFigures]

    def title(self) -> str:
        """What the verbs read."""
        return f"{self.groups:,} groups, {self.offsets:,} committed offsets"

    def rows(self) -> Sequence[VerbFigures]:
        """Python, and each verb."""
        return self.figures

    def aims(self) -> list[Aim]:
        """Each verb keeps to the bound for so many groups."""
        bound = _FEW_S if self.groups <= _FEW_GROUPS else _MANY_S
        slowest = max(each.best_s for each in self.figures if each.command != _PASS)
        return [Aim("the slowest verb", "s", bound, slowest)]


def bench_verbs(
    groups: int = 1_000, partitions: int = 10, runs: int = 5, say: Callable[[str], None] = print
) -> VerbsReport:
    """Run the verbs in turn on a root of so many groups. Raises Failure if one fails."""
    with tempfile.TemporaryDirectory(prefix="bench-verbs-") as root:
        say(f"making {groups:,} groups")
        ensure_tables(root)
        # Of ten commits seven are of different partitions.
        offsets = write_log(root, groups * (1 + -(-partitions * 10 // 7)), groups, clock_ms())
        one = group_names(groups)[-1]
        verbs = [
            "groups list",
            f"groups describe {one}",
            f"groups describe {one} --members",
            f"groups describe {one} --state",
            f"offsets show {one}",
            f"offsets reset {one} --to-offset 5 --json",
            "topics list",
            "partitions list",
        ]
        commands = {_PASS: [sys.executable, "-c", "pass"]}
        for verb in verbs:
            words = [*verb.split(), "--root", root]
            commands[verb] = [sys.executable, "-m", "pipeline", *words]
        times: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(runs):
            say(f"run {number + 1} of {runs}")
            for name, command in commands.items():
                times[name].append(_timed(command))
        figures = [VerbFigures(name, min(each), max(each)) for name, each in times.items()]
        return VerbsReport(groups, offsets, figures)


def _timed(command: list[str]) -> float:
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"{' '.join(command)}: {done.stderr.strip()}")
    return time.monotonic() - began
