"""How long an answer takes, beside the same job with a function that decides nothing.

5 groups of 20 members heartbeat once a second each. The time runs from handing a request to the
writer until its answer is read from the `responses` table by a tail. The two machines take turns in
one run, each with a process and a root of its own, so that they meet the same noise.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

from msgspec import Struct

from pipeline.bench.fleet import Fleet
from pipeline.bench.floor import MODULE
from pipeline.errors import Failure
from pipeline.process import CoordinatorProcess
from pipeline.store import ensure_tables

GROUPS = 5
MEMBERS = 20
INTERVAL_S = 1.0
# The producer's linger, s: requests handed over within it share a commit.
LINGER_S = 0.1
_POLL_S = 0.005
# The JVM goes on compiling for about a minute after a start, on half a core; not counted.
_WARM_UP_S = 60.0
_CONFIG = """\
[group]
"group.initial.rebalance.delay.ms" = 1000
"""


class Figures(Struct):
    """Answer times of one machine, ms."""

    machine: str
    answers: int
    unanswered: int
    p50_ms: float
    p99_ms: float


class Report(Struct):
    """Both machines, and the coordinator's times as multiples of the floor's."""

    floor: Figures
    coordinator: Figures
    ratio_p50: float
    ratio_p99: float


def bench_answer(
    seconds: float, rounds: int, say: Callable[[str], None], warm_up: float = _WARM_UP_S
) -> Report:
    """Measure both machines, `seconds` each in every one of `rounds`; `say` hears of progress."""
    folder = Path(tempfile.mkdtemp(prefix="group-coordinator-bench-"))
    times: dict[str, list[float]] = {"floor": [], "coordinator": []}
    missing = {"floor": 0, "coordinator": 0}
    try:
        for number in range(rounds):
            for machine in times:
                say(f"round {number + 1} of {rounds}: {machine}, {seconds:.0f} s")
                found, unanswered = _measure(
                    folder / f"{machine}-{number}", machine, seconds, warm_up
                )
                times[machine] += found
                missing[machine] += unanswered
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    floor, coordinator = (_figures(name, times[name], missing[name]) for name in times)
    return Report(
        floor,
        coordinator,
        coordinator.p50_ms / floor.p50_ms,
        coordinator.p99_ms / floor.p99_ms,
    )


def _figures(machine: str, times: list[float], unanswered: int) -> Figures:
    if len(times) < 100:
        raise Failure(f"{machine}: only {len(times)} answers; let it run longer")
    ms = [1000 * each for each in times]
    return Figures(machine, len(ms), unanswered, median(ms), quantiles(ms, n=100)[98])


def _measure(folder: Path, machine: str, seconds: float, warm_up: float) -> tuple[list[float], int]:
    folder.mkdir()
    config = folder / "bench.toml"
    config.write_text(_CONFIG)
    root = str(folder / "root")
    ensure_tables(root)
    module = MODULE if machine == "floor" else "pipeline"
    process = CoordinatorProcess(root, config, folder / "log", module)
    try:
        process.await_ready()
        fleet = Fleet(root, GROUPS, MEMBERS)
        if machine != "floor":
            fleet.form_groups()
        _heartbeats(fleet, warm_up, process)
        return _heartbeats(fleet, seconds, process)
    finally:
        process.stop()


def _heartbeats(
    fleet: Fleet, seconds: float, process: CoordinatorProcess
) -> tuple[list[float], int]:
    """Let the members heartbeat, evenly spread; the answer times, s, and how many never came."""
    members = fleet.members
    began = time.perf_counter()
    due = [began + INTERVAL_S * i / len(members) for i in range(len(members))]
    sent: dict[str, float] = {}
    times: list[float] = []
    next_append = began
    while True:
        now = time.perf_counter()
        if now >= began + seconds and (not sent or now > began + seconds + 10):
            return times, len(sent)
        if began + seconds > now >= next_append:
            next_append = now + LINGER_S
            batch = []
            for i, member in enumerate(members):
                if due[i] <= now:
                    due[i] += INTERVAL_S
                    event = member.heartbeat()
                    sent[event.request_id] = now
                    batch.append(event)
            if batch:
                fleet.requests.append(batch)
        process.check()
        for answer in fleet.answers():
            handed_over = sent.pop(answer["request_id"], None)
            if handed_over is not None:
                times.append(time.perf_counter() - handed_over)
        time.sleep(_POLL_S)
