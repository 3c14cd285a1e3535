"""Several coordinators of one root: CPU per request of all of them, and response time.

Each node owns some of the 50 offsets partitions and follows the same `requests` table. The load is
the same for any number of nodes: members that heartbeat once a second (`tests.bench.paced`), in
commits of many groups, few enough for four JVMs on two cores. The floor is one node with a function
that decides nothing. All clusters run at the same time, each on a separate root. They warm up in
parallel until the nodes' shares are even and all groups stable. They are then measured in turns
without a load on the others, so that noise of the machine affects all of them.

CPU is that of the nodes' processes: the driver's Python, the JVM and the Python workers; the load's
is excluded. `compiling` is the part of the JVMs' compilers. They compile code that has run often,
after a number of batches. One of four nodes has fewer batches than a single node, so its
compilation takes longer. A micro-batch costs about the same for few requests as for many, and each
node has its own batches. So each figure of CPU has the number of its batches, counted by the files
of Spark's offset log. Without a load a batch begins when a timer is due, or after
`trigger.max.interval.ms`, and decides almost nothing (`idle`). `reading` is the cost of only
reading the requests: readers with the nodes' partitions, in the benchmark's process, read the last
commits of each turn again, one after the other.

With more nodes than cores the nodes wait for each other, which shows in the response times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.stream.offset import Selection
from group_coordinator.pipeline.tables.store import open_table
from group_coordinator.schemas.tables import REQUESTS
from tests.bench.cpu import CpuCounter
from tests.bench.paced import INTERVAL_S, p50_and_p99, pace
from tests.bench.reading import reading_s
from tests.bench.report import Aim, Column, Report
from tests.bench.running import COORDINATOR, FLOOR, several
from tests.support.fleet import LONGEST_SESSION_MS, Fleet
from tests.support.process import KillableCoordinator
from tests.support.rebalance import form

NODES = (1, 2, 4)
# 200 heartbeats a second: 20 in each commit, of about as many groups.
GROUPS, MEMBERS = 100, 2
# A node alone had its compilers take 7 % of its CPU in the tenth minute, four nodes 17 %.
WARM_UP_S = 900.0
ROUNDS = 3
# How long the nodes are measured without a load, s.
IDLE_S = 20.0
# How many commits of a turn are read again: of 15 s. A node's upkeep deletes those that it has read
# from the log after `pipeline.delta.log_trim.GRACE_S`.
_READ_AGAIN = 150
_SHARED_TIMEOUT_S = 300.0
_LOOK_S = 0.5
_SAY_S = 30.0


class NodesFigures(Struct):
    """The figures of a number of nodes.

    CPU of all nodes in us per request and in cores; times in ms.
    """

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
    compiling_us: Annotated[float, Column("of it compiling", ",.0f")]
    reading_us: Annotated[float, Column("of it reading", ".1f")]
    p50_ms: Annotated[float, Column("p50 ms", ".0f")]
    p99_ms: Annotated[float, Column("p99 ms", ".0f")]


class NodesReport(Report):
    """The floor, and each number of nodes; `per_second` are the load's requests."""

    per_second: int
    figures: list[NodesFigures]

    def title(self) -> str:
        """Return the description of the load."""
        return f"{self.per_second:,} heartbeats/s"

    def rows(self) -> list[NodesFigures]:
        """Return the rows, the floor first."""
        return self.figures

    def aims(self) -> list[Aim]:
        """Return the aims: many nodes together take hardly more CPU than one node."""
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
    rounds: int = ROUNDS,
) -> NodesReport:
    """Measure the floor and each number of nodes `rounds` times for so long, s.

    `say` hears of progress. Raises Failure, also for a run that is too short.
    """
    with ExitStack() as stack:
        machines = []
        for kind, count in [(FLOOR, 1), *((COORDINATOR, count) for count in nodes)]:
            name = kind if kind == FLOOR else f"{count} node{'' if count == 1 else 's'}"
            say(f"nodes: starting {name}")
            processes, root = stack.enter_context(several(kind, count))
            shares = [Selection()] if count == 1 else _shared(root, count, say)
            # The members send no heartbeats while other clusters are measured.
            fleet = Fleet(root, groups, MEMBERS, "nodes", LONGEST_SESSION_MS)
            machines.append(_Machine(kind, name, processes, fleet, shares))
            if kind == COORDINATOR:
                form(fleet)
        say(f"nodes: {groups} groups formed on each, {warm_up:.0f} s of warm-up")
        with ThreadPoolExecutor(len(machines)) as pool:
            list(pool.map(lambda each: each.warm_up(warm_up, say), machines))
        for number in range(rounds):
            for machine in machines:
                machine.measure(seconds, f"round {number + 1} of {rounds}", say)
        idle_s = min(IDLE_S, seconds)
        say(f"nodes: {idle_s:.0f} s without a load")
        counters = [_Counter(each) for each in machines]
        time.sleep(idle_s)
        idle = [counter.used() for counter in counters]
        figures = [each.figures(used) for each, used in zip(machines, idle, strict=True)]
    return NodesReport(int(groups * MEMBERS / INTERVAL_S), figures)


class _Used(Struct):
    """CPU used by a cluster's nodes, s, in a number of seconds and batches."""

    seconds: float = 0.0
    batches: int = 0
    cpu_s: float = 0.0
    compiling_s: float = 0.0

    def add(self, other: _Used) -> None:
        """Add the use of another window."""
        self.seconds += other.seconds
        self.batches += other.batches
        self.cpu_s += other.cpu_s
        self.compiling_s += other.compiling_s


class _Machine:
    """The nodes of one root, and their measurements."""

    def __init__(
        self,
        kind: str,
        name: str,
        processes: list[KillableCoordinator],
        fleet: Fleet,
        shares: list[Selection],
    ) -> None:
        self.kind = kind
        self.name = name
        self.processes = processes
        self.fleet = fleet
        self._shares = shares
        self._used = _Used()
        self._times: list[float] = []
        self._unanswered = 0
        self._reading_s = 0.0

    def warm_up(self, seconds: float, say: Callable[[str], None]) -> None:
        """Give the nodes their load, and measure nothing."""
        pace(self.fleet, seconds, self.processes[0], _progress(self.name, say))

    def measure(self, seconds: float, what: str, say: Callable[[str], None]) -> None:
        """Run the load for `seconds` and count the nodes' CPU and batches."""
        first = open_table(self.fleet.root, REQUESTS).version() + 1
        counter = _Counter(self)
        times, unanswered = pace(self.fleet, seconds, self.processes[0], _progress(self.name, say))
        used = counter.used()
        p50, p99 = p50_and_p99(times, self.name)
        self._used.add(used)
        self._times += times
        self._unanswered += unanswered
        self._reading_s += self._reading_of(first)
        us = 1e6 / len(times)
        say(
            f"nodes: {what}: {self.name}: {used.cpu_s / used.seconds:.2f} cores, "
            f"{used.batches / used.seconds:.1f} batches/s, {us * used.cpu_s:.0f} us a request, "
            f"{us * used.compiling_s:.0f} of it compiling, p50 {p50:.0f} ms, p99 {p99:.0f} ms"
        )

    def _reading_of(self, first: int) -> float:
        """Return the CPU, s, of reading the commits from a version on, by the last of them."""
        end = open_table(self.fleet.root, REQUESTS).version() + 1
        begin = max(first, end - _READ_AGAIN)
        again = sum(reading_s(self.fleet.root, share, begin) for share in self._shares)
        return again * (end - first) / (end - begin)

    def figures(self, idle: _Used) -> NodesFigures:
        """Return the figures of all windows together, and of the time without a load."""
        used, answers = self._used, len(self._times)
        p50, p99 = p50_and_p99(self._times, self.name)
        return NodesFigures(
            machine=self.kind,
            nodes=len(self.processes),
            answers=answers,
            unanswered=self._unanswered,
            idle_cores=idle.cpu_s / idle.seconds,
            idle_batches=idle.batches / idle.seconds,
            cores=used.cpu_s / used.seconds,
            batches=used.batches / used.seconds,
            batch_ms=1000 * used.cpu_s / max(used.batches, 1),
            cpu_us=1e6 * used.cpu_s / answers,
            compiling_us=1e6 * used.compiling_s / answers,
            reading_us=1e6 * self._reading_s / answers,
            p50_ms=p50,
            p99_ms=p99,
        )


class _Counter:
    """A counter of the CPU and batches of a machine's nodes, from its creation on."""

    def __init__(self, machine: _Machine) -> None:
        self._root = machine.fleet.root
        self._cpu = CpuCounter([each.pid for each in machine.processes])
        self._planned = _planned(self._root)
        self._began = time.monotonic()

    def used(self) -> _Used:
        """Return the CPU and batches used until now."""
        seconds = time.monotonic() - self._began
        batches = _planned(self._root) - self._planned
        return _Used(seconds, batches, *self._cpu.used())


def _progress(name: str, say: Callable[[str], None]) -> Callable[[list[float]], None]:
    """Return a callback that reports the number of responses every `_SAY_S`."""
    said_at = time.monotonic()

    def look(times: list[float]) -> None:
        nonlocal said_at
        if time.monotonic() >= said_at + _SAY_S:
            said_at = time.monotonic()
            say(f"nodes: {name}: {len(times)} answers")

    return look


def _shared(root: str, count: int, say: Callable[[str], None]) -> list[Selection]:
    """Wait until the nodes' shares of the offsets partitions are even; return the shares."""
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


def _planned(root: str) -> int:
    """Return the number of batches planned by all streaming checkpoints of a root."""
    last: dict[Path, int] = {}
    for file in Path(root).glob("_checkpoints/*/*/stream/offsets/*"):
        if file.name.isdigit():
            last[file.parent] = max(last.get(file.parent, 0), int(file.name) + 1)
    return sum(last.values())
