"""What a batch costs that has one request from each of very many groups.

2,000 groups of one member each, which heartbeats: in small groups the cost of a group in Spark and
pandas counts most. The floor is the empty function with the same sources and sinks. The storing
floor decides nothing either, but writes as many bytes of state for each group as the coordinator,
which must store when it last heard of each member. The three take turns within one Spark; the first
turn of each does not count, because the JVM compiles meanwhile.

A batch of the three took 145, 183 and 231 ms. Of these the worker's Python took 13, 20 and 52 to 61
ms, the sink about 10 in each, and the JVM the rest: it reads the states, makes Arrow and pickles of
them, writes them to the state store, and compiles all the while. In a py-spy profile of the worker
(the command is in `pipeline.bench.answer`) a third was the JSON of a schema, parsed for each state
(`unpickle` in `pipeline.session.arrow_groups` parses it once). Of the 26 us that are left for a
group, 14 decide (2 of them decode the state, 1 encodes it) and 12 take the group out of Arrow and
put it back. Arrow batches of 500 groups instead of all (`maxRecordsPerBatch`) let the JVM and
Python work at the same time, which saved a tenth; a second partition (`shuffle.partitions`) saves
as much.

State keyed by a shard of groups, as Kafka's own coordinator has it, was tried with the two floors
and 64 shards: a batch of 2,000 groups took 116 and 128 ms, against 176 and 207 with a key for each
group. That is 1.6 times faster at most, before anything is decided. It would have to be five times,
because every heartbeat would then rewrite the state of a whole shard.

The pure machine's part of such a batch is the load "heartbeats, small groups" of `bench machine`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated

from msgspec import Struct

from group_coordinator.pipeline.bench.fleet import LONGEST_SESSION_MS, Fleet
from group_coordinator.pipeline.bench.in_process import BatchTime, bench_settings, serving, session
from group_coordinator.pipeline.bench.rebalance import form
from group_coordinator.pipeline.bench.report import Aim, Column, Report
from group_coordinator.pipeline.bench.running import COORDINATOR, FLOOR, STORING
from group_coordinator.pipeline.tables.store import ensure_tables

GROUPS = 2_000
BATCHES = 15
ROUNDS = 3


class BatchFigures(Struct):
    """Medians of one machine's batches, ms; `ms_a_group` is `batch_ms` over the groups."""

    machine: Annotated[str, Column("machine")]
    batches: Annotated[int, Column("batches")]
    batch_ms: Annotated[float, Column("batch, ms", ".0f")]
    add_batch_ms: Annotated[float, Column("of it run and written, ms", ".0f")]
    ms_a_group: Annotated[float, Column("ms a group", ".3f")]


class GroupsReport(Report):
    """The machines, and the coordinator's batch as a multiple of the floors'."""

    groups: int
    floor: BatchFigures
    storing: BatchFigures
    coordinator: BatchFigures
    ratio: float
    ratio_storing: float

    def title(self) -> str:
        """The load."""
        return f"{self.groups:,} groups, one request of each in a batch"

    def rows(self) -> list[BatchFigures]:
        """All machines."""
        return [self.floor, self.storing, self.coordinator]

    def ratios(self) -> dict[str, dict[str, float]]:
        """The coordinator over each floor."""
        return {
            "over the floor": {"batch, ms": self.ratio},
            "over the storing floor": {"batch, ms": self.ratio_storing},
        }

    def aims(self) -> list[Aim]:
        """A batch takes little longer than the floors' batches."""
        return [
            Aim("a batch over the floor's", "", 1.15, self.ratio),
            Aim("a batch over the storing floor's", "", 1.15, self.ratio_storing),
        ]


def bench_groups(
    rounds: int = ROUNDS,
    say: Callable[[str], None] = print,
    groups: int = GROUPS,
    batches: int = BATCHES,
) -> GroupsReport:
    """Measure `batches` batches of each machine in each of `rounds`; `say` hears of progress."""
    times: dict[str, list[BatchTime]] = {FLOOR: [], STORING: [], COORDINATOR: []}
    with tempfile.TemporaryDirectory(prefix="bench-groups-") as folder, session(folder):
        fleets = {}
        for machine in times:
            root = str(Path(folder) / machine)
            ensure_tables(root)
            fleets[machine] = Fleet(root, groups, 1, "groups", LONGEST_SESSION_MS)
        for number in range(rounds + 1):
            for machine, found in times.items():
                turn = f"round {number} of {rounds}" if number else "warm-up"
                say(f"groups: {turn}, {machine}, {batches} batches of {groups:,} groups")
                taken = _turn(folder, machine, fleets[machine], batches, first=not number)
                found += taken if number else []
    floor, storing, ours = (_figures(name, found, groups) for name, found in times.items())
    ratios = (ours.batch_ms / each.batch_ms for each in (floor, storing))
    return GroupsReport(groups, floor, storing, ours, *ratios)


def _turn(folder: str, machine: str, fleet: Fleet, batches: int, first: bool) -> list[BatchTime]:
    with serving(str(Path(folder) / machine), bench_settings(), machine) as turn:
        if first and machine == COORDINATOR:
            form(fleet)
        return turn.batches(fleet, batches, lambda: [m.heartbeat() for m in fleet.members])


def _figures(machine: str, times: list[BatchTime], groups: int) -> BatchFigures:
    batch = median(time.all_ms for time in times)
    add_batch = median(time.add_batch_ms for time in times)
    return BatchFigures(machine, len(times), batch, add_batch, batch / groups)
