"""How long an answer takes, by the producer's linger.ms.

A shorter linger means less waiting and more commits, each of which is a file that the producer
writes and the next batch opens. One coordinator meets the lingers one after the other, with the
load of `answer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from msgspec import Struct

from group_coordinator.pipeline.bench.fleet import Fleet
from group_coordinator.pipeline.bench.paced import GROUPS, MEMBERS, p50_and_p99, pace
from group_coordinator.pipeline.bench.rebalance import form
from group_coordinator.pipeline.bench.report import Column, Report
from group_coordinator.pipeline.bench.running import COORDINATOR, WARM_UP_S, running

LINGERS_MS = (20, 50, 100, 200)


class LingerFigures(Struct):
    """Answer times at one linger, ms; they include the linger."""

    linger_ms: Annotated[int, Column("linger.ms")]
    answers: Annotated[int, Column("answers")]
    unanswered: Annotated[int, Column("unanswered")]
    p50_ms: Annotated[float, Column("p50 ms", ".0f", bar="p50")]
    p99_ms: Annotated[float, Column("p99 ms", ".0f")]


class LingerReport(Report):
    """A row for each linger."""

    lingers: list[LingerFigures]

    def rows(self) -> list[LingerFigures]:
        """Every linger."""
        return self.lingers


def bench_linger(
    seconds: float,
    say: Callable[[str], None],
    warm_up: float = WARM_UP_S,
    lingers_ms: Sequence[int] = LINGERS_MS,
) -> LingerReport:
    """Measure each linger for `seconds`; raises Failure, also for a run that is too short."""
    found = []
    with running(COORDINATOR) as (process, root):
        fleet = Fleet(root, GROUPS, MEMBERS, "linger")
        form(fleet)
        pace(fleet, warm_up, process)
        for linger_ms in lingers_ms:
            say(f"linger.ms {linger_ms}, {seconds:.0f} s")
            times, unanswered = pace(fleet, seconds, process, linger_s=linger_ms / 1000)
            p50, p99 = p50_and_p99(times, f"linger.ms {linger_ms}")
            found.append(LingerFigures(linger_ms, len(times), unanswered, p50, p99))
    return LingerReport(found)
