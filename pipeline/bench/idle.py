"""What idle groups add to a batch in which one other group asks something.

The idle groups are Empty groups with a committed offset, loaded from the offsets topic as at any
start. Every batch has one heartbeat. Idle groups make a batch longer because Spark looks through
its whole state for timers that are due. The floor is the empty function, which has a byte of state
for each of the same groups.

All cases take turns within one Spark; the first turn of each loads the groups and does not count.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

from msgspec import Struct

from group_coordinator.pipeline.bench.fleet import LONGEST_SESSION_MS, Fleet
from group_coordinator.pipeline.bench.idle_log import write_idle_groups
from group_coordinator.pipeline.bench.in_process import BatchTime, bench_settings, serving, session
from group_coordinator.pipeline.bench.rebalance import form
from group_coordinator.pipeline.bench.report import Aim, Column, Report
from group_coordinator.pipeline.bench.running import COORDINATOR, FLOOR
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.store import ensure_tables

IDLE = (1_000, 10_000, 100_000)
BATCHES = 20
ROUNDS = 3


class IdleFigures(Struct):
    """Medians, ms, of batches beside `idle` groups; `adds_ms` is more than beside none."""

    machine: Annotated[str, Column("machine")]
    idle: Annotated[int, Column("idle groups", ",.0f")]
    batches: Annotated[int, Column("batches")]
    batch_ms: Annotated[float, Column("batch, ms", ".0f")]
    add_batch_ms: Annotated[float, Column("of it run and written, ms", ".0f")]
    adds_ms: Annotated[float, Column("added, ms", "+.0f", bar="", zero=False)]


class IdleReport(Report):
    """Both machines, by rising numbers of idle groups, the first none."""

    state_store: str
    figures: list[IdleFigures]

    def title(self) -> str:
        """The load and the store."""
        return f"one request a batch, state.store = {self.state_store}"

    def rows(self) -> list[IdleFigures]:
        """Both machines."""
        return self.figures

    def aims(self) -> list[Aim]:
        """The most idle groups add little to the coordinator's batch."""
        ours = [each for each in self.figures if each.machine == COORDINATOR]
        most = max(ours, key=lambda each: each.idle)
        return [Aim(f"{most.idle:,} idle groups add", "ms", 150, most.adds_ms)]


class _Case:
    """One machine with a root of `idle` groups, and the times of its batches."""

    def __init__(self, folder: str, machine: str, idle: int) -> None:
        self.machine = machine
        self.idle = idle
        self.root = str(Path(folder) / f"{machine}-{idle}")
        self.times: list[BatchTime] = []
        ensure_tables(self.root)
        write_idle_groups(self.root, idle, clock_ms())
        self._fleet = Fleet(self.root, 1, 1, "busy", LONGEST_SESSION_MS)
        self._formed = False

    def turn(self, state_store: str, batches: int) -> list[BatchTime]:
        """Serve `batches` batches. Raises Failure if the state lacks idle groups."""
        fleet = self._fleet
        with serving(self.root, bench_settings(state_store), self.machine) as turn:
            if not self._formed and self.machine == COORDINATOR:
                form(fleet)
            self._formed = True
            times = turn.batches(fleet, batches, lambda: [m.heartbeat() for m in fleet.members])
        if times[-1].rows < self.idle:
            raise Failure(f"only {times[-1].rows} groups in the state, not {self.idle}")
        return times


def bench_idle(
    rounds: int = ROUNDS,
    say: Callable[[str], None] = print,
    idle: Sequence[int] = IDLE,
    batches: int = BATCHES,
    state_store: str = "rocksdb",
    warm_ups: int = 1,
) -> IdleReport:
    """Measure `batches` batches of each case in each of `rounds`; `say` hears of progress."""
    with tempfile.TemporaryDirectory(prefix="bench-idle-") as folder, session(folder):
        cases = [
            _Case(folder, machine, count)
            for machine in (FLOOR, COORDINATOR)
            for count in (0, *idle)
        ]
        for number in range(1 - warm_ups, rounds + 1):
            for case in cases:
                turn = f"round {number} of {rounds}" if number > 0 else "warm-up"
                say(f"idle: {turn}, {case.machine}, {case.idle:,} idle groups")
                times = case.turn(state_store, batches)
                case.times += times if number > 0 else []
    return IdleReport(state_store, _figures(cases))


def _figures(cases: list[_Case]) -> list[IdleFigures]:
    medians = {(c.machine, c.idle): median(time.all_ms for time in c.times) for c in cases}
    return [
        IdleFigures(
            case.machine,
            case.idle,
            len(case.times),
            medians[case.machine, case.idle],
            median(time.add_batch_ms for time in case.times),
            medians[case.machine, case.idle] - medians[case.machine, 0],
        )
        for case in cases
    ]
