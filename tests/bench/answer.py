"""Response time, compared with the same Spark job with a function that decides nothing.

Every member of 5 groups of 20 heartbeats once a second (`tests.bench.paced`). Both machines are
started and then take turns of some seconds; during a turn the other machine is paused with its JVM.
So both meet the same noise, and have compiled for equally long. The first turns do not count
(`WARM_UP_S`).

To profile, use async-profiler for a running coordinator's JVM (its library is in a jar on Maven
Central), and py-spy for its Python processes:

    jcmd PID JVMTI.agent_load LIBRARY '"start,event=wall,interval=1ms,threads"'
    jcmd PID JVMTI.agent_load LIBRARY '"stop,file=FILE,collapsed"'
    py-spy record --rate 200 --duration 15 --format raw --output FILE --pid PID

A batch of this load took 190 ms on two cores when Spark's Delta source read the requests. Of these

* 62 ms were that source: 21 to find the newest version, 10 to list the commits, 31 to plan the scan
  of two files (a query over the log, generated code, a broadcast of Hadoop's settings). See
  `pipeline/stream/event_source.py`.
* 40 ms were processes of chmod, for the files of the offset, of the commit and of the state store's
  changes. See `pipeline/session/start.py`.
* 12 ms were the shuffle into one partition.

In the other 60 to 75 ms, planning took 7, making tasks of the plan 13 (6 of them to broadcast
Hadoop's settings for the state store, now 2: `pipeline/session/spark_settings.py`), and the job and
the writing of its responses 35 to 45.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

from msgspec import Struct

from tests.bench.paced import GROUPS, MEMBERS, p50_and_p99, pace
from tests.bench.report import Aim, Column, Report
from tests.bench.running import COORDINATOR, FLOOR, WARM_UP_S, running
from tests.support.fleet import LONGEST_SESSION_MS, Fleet
from tests.support.process import KillableCoordinator
from tests.support.rebalance import form

# Two minutes of each machine. A turn must be shorter than the two minutes after which Spark gives
# up on its own heartbeats: the other machine's Spark is paused for so long.
TURN_S = 20.0
ROUNDS = 6
# The time in which a resumed machine processes the requests of its pause.
_SETTLE_S = 2.0


class Figures(Struct):
    """Answer times of one machine, ms; `least_p50_ms` and `most_p50_ms` are of single turns."""

    machine: Annotated[str, Column("machine")]
    answers: Annotated[int, Column("answers")]
    unanswered: Annotated[int, Column("unanswered")]
    p50_ms: Annotated[float, Column("p50 ms", ".0f")]
    p99_ms: Annotated[float, Column("p99 ms", ".0f")]
    least_p50_ms: Annotated[float, Column("least p50 of a turn", ".0f")]
    most_p50_ms: Annotated[float, Column("most", ".0f")]


class AnswerReport(Report):
    """Both machines, and the coordinator's times as multiples of the floor's."""

    floor: Figures
    coordinator: Figures
    ratio_p50: float
    ratio_p99: float

    def rows(self) -> list[Figures]:
        """Both machines."""
        return [self.floor, self.coordinator]

    def ratios(self) -> dict[str, dict[str, float]]:
        """Return the coordinator's figures divided by the floor's."""
        return {"ratio": {"p50 ms": self.ratio_p50, "p99 ms": self.ratio_p99}}

    def aims(self) -> list[Aim]:
        """Answers in time, and not much later than those of a function that decides nothing."""
        return [
            Aim("p50", "ms", 200, self.coordinator.p50_ms),
            Aim("p99", "ms", 500, self.coordinator.p99_ms),
            Aim("p50 over the floor's", "", 1.2, self.ratio_p50),
            Aim("p99 over the floor's", "", 1.2, self.ratio_p99),
        ]


def bench_answer(
    seconds: float = TURN_S,
    rounds: int = ROUNDS,
    say: Callable[[str], None] = print,
    warm_up: float = WARM_UP_S,
    root: str | None = None,
) -> AnswerReport:
    """Measure both machines, `seconds` each in every one of `rounds`; `say` hears of progress.

    `warm_up`, s, is the length of each machine's turns before the first round. `root` is where the
    tables lie, which stay; null is a temporary folder. Raises Failure, also for a run that is too
    short.
    """
    warm_ups = math.ceil(warm_up / seconds)
    with ExitStack() as stack:
        machines = []
        for name in (FLOOR, COORDINATOR):
            say(f"answer: starting the {name}")
            machines.append(stack.enter_context(_standing(name, root)))
        for number in range(1, warm_ups + rounds + 1):
            for machine in machines:
                if number <= warm_ups:
                    which = f"warm-up {number} of {warm_ups}"
                else:
                    which = f"round {number - warm_ups} of {rounds}"
                times, unanswered = machine.turn(seconds)
                p50, p99 = p50_and_p99(times, machine.name)
                say(f"answer: {which}, {machine.name}: p50 {p50:.0f} ms, p99 {p99:.0f} ms")
                if number > warm_ups:
                    machine.count(times, unanswered, p50)
        floor, coordinator = (machine.figures() for machine in machines)
    return AnswerReport(
        floor,
        coordinator,
        coordinator.p50_ms / floor.p50_ms,
        coordinator.p99_ms / floor.p99_ms,
    )


class _Machine:
    """A machine that is paused except in its turns, and the answer times of its turns."""

    def __init__(self, name: str, process: KillableCoordinator, root: str) -> None:
        self.name = name
        self._process = process
        self._fleet = Fleet(root, GROUPS, MEMBERS, "answer", LONGEST_SESSION_MS)
        self._times: list[float] = []
        self._unanswered = 0
        self._p50s: list[float] = []
        if name == COORDINATOR:
            form(self._fleet)
        process.pause()

    def turn(self, seconds: float) -> tuple[list[float], int]:
        """Run a turn; return the response times, s, and the number of missing responses."""
        self._process.resume()
        pace(self._fleet, _SETTLE_S, self._process)
        found = pace(self._fleet, seconds, self._process)
        self._process.pause()
        return found

    def count(self, times: list[float], unanswered: int, p50: float) -> None:
        """Add the results of a turn to the figures."""
        self._times += times
        self._unanswered += unanswered
        self._p50s.append(p50)

    def figures(self) -> Figures:
        """Return the figures over all turns."""
        p50, p99 = p50_and_p99(self._times, self.name)
        least, most = min(self._p50s), max(self._p50s)
        return Figures(self.name, len(self._times), self._unanswered, p50, p99, least, most)


@contextmanager
def _standing(name: str, under: str | None) -> Iterator[_Machine]:
    own = None if under is None else f"{under.rstrip('/')}/answer-{uuid.uuid4().hex[:8]}"
    with running(name, root=own) as (process, root):
        try:
            yield _Machine(name, process, root)
        finally:
            # A paused process does not see the signal that stops it in order.
            process.resume()
