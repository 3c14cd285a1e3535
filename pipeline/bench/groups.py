"""What a batch costs that has one request from each of very many groups.

2,000 groups of one member, which heartbeats: a fleet of small groups, where what Spark and pandas
spend on a group counts. The floor is the empty function with the same sources and sinks. The
storing floor decides nothing either, but writes as many bytes of state for each group as the
coordinator must, which is to know when a group's members were last heard of. They take turns within
one Spark; a first turn of each does not count, JVMs compile meanwhile.

Where the time goes, of 145, 183 and 231 ms a batch of the three: 13, 20 and 52 to 61 ms are the
worker's Python, some 10 the sink in each, and what is left is the JVM's, which compiles all the
while: to read the states, to make Arrow and pickles of them, to write them to the state store. A
py-spy profile of the worker (`pipeline.bench.answer` has the command) showed that a third of it was
the JSON of a schema, parsed for each state (`unpickle` in `pipeline.stream.arrow_groups`). What is
left of a group's 26 us is flat: 14 decide, of them 2 to decode the state and 1 to encode it, 12
take the group out of Arrow and put it back. The JVM and Python work beside each other since a piece
is 500 groups, not all (`maxRecordsPerBatch`), a tenth less; a second partition wins as much
(`shuffle.partitions`).

State keyed by a shard of groups, as Kafka's own coordinator has it, was tried with the two floors
and 64 shards: 116 and 128 ms a batch of 2,000 groups where a key for each group takes 176 and 207.
So it could win 1.6 times before anything is decided, not the five that would pay for states of a
shard's size being written for every heartbeat in it.

What the machine itself spends on such a batch is "heartbeats, small groups" of `bench machine`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated

from msgspec import Struct

from pipeline.bench.fleet import LONGEST_SESSION_MS, Fleet
from pipeline.bench.in_process import BatchTime, bench_settings, serving, session
from pipeline.bench.rebalance import form
from pipeline.bench.report import Aim, Column, Report
from pipeline.bench.running import COORDINATOR, FLOOR, STORING
from pipeline.tables.store import ensure_tables

GROUPS = 2_000
BATCHES = 15
ROUNDS = 3


class BatchFigures(Struct):
    """What a batch takes on one machine: medians, ms; `ms_a_group` is of all of it."""

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
