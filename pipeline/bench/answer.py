"""How long an answer takes, beside the same job with a function that decides nothing.

5 groups of 20 members heartbeat once a second each (`pipeline.bench.paced`). The two machines take
turns in one run, each with a process and a root of its own, so that they meet the same noise.

Profile: a running coordinator's JVM by async-profiler (its library is in a jar on Maven Central),
its Python processes by py-spy:

    jcmd PID JVMTI.agent_load LIBRARY '"start,event=wall,interval=1ms,threads"'
    jcmd PID JVMTI.agent_load LIBRARY '"stop,file=FILE,collapsed"'
    py-spy record --rate 200 --duration 15 --format raw --output FILE --pid PID

A batch of this load took 190 ms on two cores when Spark's Delta source read the requests. Of them

* 62 were that source: 21 to find the newest version, 10 to list the commits, 31 to plan the scan of
  two files (a query over the log, generated code, a broadcast of Hadoop's settings). See
  `pipeline/event_source.py`.
* 40 were chmod, forked for the offset, the commit and the groups' changes. See
  `pipeline/session.py`.
* 12 were a shuffle into one partition.

Of the 60 to 75 ms that are left, planning is 7, making tasks of the plan 13 (6 of them a broadcast
of Hadoop's settings for the state store), and the job and the writing of its answers 35 to 45.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from pipeline.bench.fleet import Fleet, FleetPeer
from pipeline.bench.paced import GROUPS, MEMBERS, WARM_UP_S, p50_and_p99, pace
from pipeline.bench.rebalance import Rebalance
from pipeline.bench.running import COORDINATOR, FLOOR, running


class Figures(Struct):
    """Answer times of one machine, ms."""

    machine: str
    answers: int
    unanswered: int
    p50_ms: float
    p99_ms: float


class AnswerReport(Struct):
    """Both machines, and the coordinator's times as multiples of the floor's."""

    floor: Figures
    coordinator: Figures
    ratio_p50: float
    ratio_p99: float


def bench_answer(
    seconds: float, rounds: int, say: Callable[[str], None], warm_up: float = WARM_UP_S
) -> AnswerReport:
    """Measure both machines, `seconds` each in every one of `rounds`; `say` hears of progress.

    Raises Failure, also for a run that is too short.
    """
    times: dict[str, list[float]] = {FLOOR: [], COORDINATOR: []}
    missing = {FLOOR: 0, COORDINATOR: 0}
    for number in range(rounds):
        for machine in times:
            say(f"round {number + 1} of {rounds}: {machine}, {seconds:.0f} s")
            found, unanswered = _measure(machine, seconds, warm_up)
            times[machine] += found
            missing[machine] += unanswered
    floor, coordinator = (
        Figures(name, len(found), missing[name], *p50_and_p99(found, name))
        for name, found in times.items()
    )
    return AnswerReport(
        floor,
        coordinator,
        coordinator.p50_ms / floor.p50_ms,
        coordinator.p99_ms / floor.p99_ms,
    )


def _measure(machine: str, seconds: float, warm_up: float) -> tuple[list[float], int]:
    with running(machine) as (process, root):
        fleet = Fleet(root, GROUPS, MEMBERS, "answer")
        if machine == COORDINATOR:
            Rebalance(FleetPeer(fleet), fleet.members).run(fleet.members)
        pace(fleet, warm_up, process)
        return pace(fleet, seconds, process)
