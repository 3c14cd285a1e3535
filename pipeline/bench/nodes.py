"""Several coordinators of one root: the CPU of all of them a request, and the answer time.

Each node owns some of the 50 offsets partitions and follows the same `requests` table. The load is
the same for any number of nodes: members that heartbeat once a second (`pipeline.bench.paced`), in
commits of many groups, few enough for four JVMs on two cores. The floor is one node with a function
that decides nothing. What is measured begins once the nodes' shares are even and all groups stable.

CPU is that of the nodes' processes, each a driver's Python, its JVM and its Python workers, as
/proc counts it; the load's own is not in it. A micro-batch costs about as much for few requests as
for many, and each node has its own: so each figure of CPU stands beside the batches that it went
into, counted by the files of Spark's log of offsets. Without a load a batch begins when a timer is
due, or after `trigger.max.interval.ms`, and has next to nothing to decide (`idle`). `reading` is
what only reading the requests takes, as each node reads them: the run's own commits once more, one
after the other, by readers with the nodes' partitions, in the benchmark's process.

With more nodes than cores the nodes wait for each other, and answer times say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from coordinator.config import GroupCoordinatorConfig
from pipeline.bench.fleet import Fleet
from pipeline.bench.gateway import cpu_s
from pipeline.bench.paced import INTERVAL_S, p50_and_p99, pace
from pipeline.bench.reading import reading_s
from pipeline.bench.rebalance import form
from pipeline.bench.report import Aim, Column, Report
from pipeline.bench.running import COORDINATOR, FLOOR, WARM_UP_S, several
from pipeline.errors import Failure
from pipeline.node.process import CoordinatorProcess
from pipeline.node.process_tree import descendants
from pipeline.ownership.decision_log import DecisionLog
from pipeline.stream.offset import Selection
from pipeline.tables.store import open_table
from schemas.tables import REQUESTS

NODES = (1, 2, 4)
# 200 heartbeats a second: 20 in each commit, of about as many groups.
GROUPS, MEMBERS = 100, 2
# How long the nodes are measured without a load, s.
IDLE_S = 10.0
_SHARED_TIMEOUT_S = 300.0
_LOOK_S = 0.5
_SAY_S = 10.0


class NodesFigures(Struct):
    """One number of nodes. CPU in us a request and in cores, of all nodes together; times in ms."""

    machine: Annotated[str, Column("machine")]
    nodes: Annotated[int, Column("nodes")]
    answers: Annotated[int, Column("answers")]
    unanswered: Annotated[int, Column("unanswered")]
    idle_cores: Annotated[float, Column("idle, cores", ".2f")]
    idle_batches: Annotated[float, Column("batches/s", ".1f")]
    cores: Annotated[float, Column("loaded, cores", ".2f")]
    batches: Annotated[float, Column("batches/s", ".1f")]
    batch_ms: Annotated[float, Column("CPU ms a batch", ".0f")]
    cpu_us: Annotated[float, Column("CPU us a request", ",.0f")]
    reading_us: Annotated[float, Column("of it reading", ".1f")]
    p50_ms: Annotated[float, Column("p50 ms", ".0f")]
    p99_ms: Annotated[float, Column("p99 ms", ".0f")]


class NodesReport(Report):
    """The floor, and each number of nodes; `per_second` are the load's requests."""

    per_second: int
    figures: list[NodesFigures]

    def title(self) -> str:
        """The load."""
        return f"{self.per_second:,} heartbeats/s"

    def rows(self) -> list[NodesFigures]:
        """The floor first."""
        return self.figures

    def aims(self) -> list[Aim]:
        """The sum over the most nodes is hardly more than one node's."""
        found = [each for each in self.figures if each.machine == COORDINATOR]
        most, one = max(found, key=_nodes), min(found, key=_nodes)
        over = f"{most.nodes} nodes over {one.nodes}"
        return [
            Aim(f"CPU a request, {over}", "", 1.15, most.cpu_us / one.cpu_us),
            Aim(f"reading a request, {over}", "", 1.15, most.reading_us / one.reading_us),
        ]


def _nodes(figures: NodesFigures) -> int:
    return figures.nodes


def bench_nodes(
    seconds: float,
    say: Callable[[str], None],
    nodes: Sequence[int] = NODES,
    groups: int = GROUPS,
    warm_up: float = WARM_UP_S,
) -> NodesReport:
    """Measure the floor and each number of nodes for so long, s; `say` hears of progress.

    Raises Failure, also for a run that is too short.
    """
    figures = [
        _measured(machine, count, seconds, groups, warm_up, say)
        for machine, count in [(FLOOR, 1), *((COORDINATOR, count) for count in nodes)]
    ]
    return NodesReport(int(groups * MEMBERS / INTERVAL_S), figures)


def _measured(
    machine: str,
    count: int,
    seconds: float,
    groups: int,
    warm_up: float,
    say: Callable[[str], None],
) -> NodesFigures:
    name = machine if machine == FLOOR else f"{count} node{'' if count == 1 else 's'}"
    say(f"nodes: starting {name}")
    with several(machine, count) as (processes, root):
        shares = [Selection()] if count == 1 else _shared(root, count, say)
        fleet = Fleet(root, groups, MEMBERS, "nodes")
        if machine == COORDINATOR:
            form(fleet)
        say(f"nodes: {name}: {len(fleet.groups)} groups formed, {warm_up:.0f} s of warm-up")
        pace(fleet, warm_up, processes[0], _progress(name, say))
        with _measuring(processes, root) as idle:
            time.sleep(min(IDLE_S, seconds))
        first = open_table(root, REQUESTS).version() + 1
        with _measuring(processes, root) as loaded:
            times, unanswered = pace(fleet, seconds, processes[0], _progress(name, say))
        p50, p99 = p50_and_p99(times, name)
        found = NodesFigures(
            machine=machine,
            nodes=count,
            answers=len(times),
            unanswered=unanswered,
            idle_cores=idle.cpu_s / idle.seconds,
            idle_batches=idle.batches / idle.seconds,
            cores=loaded.cpu_s / loaded.seconds,
            batches=loaded.batches / loaded.seconds,
            batch_ms=1000 * loaded.cpu_s / max(loaded.batches, 1),
            cpu_us=1e6 * loaded.cpu_s / len(times),
            reading_us=1e6 * sum(reading_s(root, share, first) for share in shares) / len(times),
            p50_ms=p50,
            p99_ms=p99,
        )
    say(
        f"nodes: {name}: {found.idle_cores:.2f} cores idle, {found.cores:.2f} loaded, "
        f"{found.batches:.1f} batches/s, {found.cpu_us:.0f} us a request, "
        f"{found.reading_us:.1f} of it reading, p50 {p50:.0f} ms, p99 {p99:.0f} ms"
    )
    return found


def _progress(name: str, say: Callable[[str], None]) -> Callable[[list[float]], None]:
    """Say every `_SAY_S` how many answers there are."""
    said_at = time.monotonic()

    def look(times: list[float]) -> None:
        nonlocal said_at
        if time.monotonic() >= said_at + _SAY_S:
            said_at = time.monotonic()
            say(f"nodes: {name}: {len(times)} answers")

    return look


def _shared(root: str, count: int, say: Callable[[str], None]) -> list[Selection]:
    """Wait until the nodes' shares of the offsets partitions are even; return what each has."""
    of = GroupCoordinatorConfig().offsets_topic_num_partitions
    decisions = DecisionLog(root)
    began = time.monotonic()
    while True:
        cluster = decisions.read()
        owned = [tuple(sorted(cluster.kept_by(number))) for number in range(1, count + 1)]
        sizes = [*map(len, owned)]
        if sum(sizes) == of and max(sizes) <= min(sizes) + 1:
            say(f"nodes: shares of {sizes} after {time.monotonic() - began:.0f} s")
            return [Selection(mine, of) for mine in owned]
        if time.monotonic() > began + _SHARED_TIMEOUT_S:
            raise Failure(f"the nodes do not share the partitions: {sizes}")
        time.sleep(_LOOK_S)


class _Used:
    """What processes have used of CPU, s, in so many seconds and batches."""

    cpu_s = 0.0
    seconds = 0.0
    batches = 0


@contextmanager
def _measuring(nodes: Sequence[CoordinatorProcess], root: str) -> Iterator[_Used]:
    """Count the CPU of the nodes and of all that they have started, while the block runs."""
    used = _Used()
    before, began, planned = _cpu_of(nodes), time.monotonic(), _planned(root)
    yield used
    used.batches = _planned(root) - planned
    used.seconds = time.monotonic() - began
    after = _cpu_of(nodes)
    used.cpu_s = sum(spent - before.get(pid, 0.0) for pid, spent in after.items())


def _planned(root: str) -> int:
    """How many batches the streaming checkpoints beside the tables have planned, all together."""
    last: dict[Path, int] = {}
    for file in Path(root).glob("_checkpoints/*/*/stream/offsets/*"):
        if file.name.isdigit():
            last[file.parent] = max(last.get(file.parent, 0), int(file.name) + 1)
    return sum(last.values())


def _cpu_of(nodes: Sequence[CoordinatorProcess]) -> dict[int, float]:
    found: dict[int, float] = {}
    for node in nodes:
        for pid in (node.pid, *(each.pid for each in descendants(node.pid))):
            try:
                found[pid] = cpu_s(pid)
            except (FileNotFoundError, ProcessLookupError):
                # It has ended since it was listed.
                continue
    return found
