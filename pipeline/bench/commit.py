"""What a commit costs by the number of partitions that its group holds.

A group of one member holds a number of committed offsets, and commits a few of them in every batch,
in turn. Measured is the pure machine on one core, from the event's JSON to the state's bytes. The
floor decodes the same event, encodes the same output and copies the state, since Spark keeps a
group's state as one value and writes all of it after every batch. Memory is allocated as in Spark's
workers (`pipeline.bench.allocator`).

Profile: python -m cProfile -s tottime -m pipeline bench commit
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Annotated

from msgspec import Struct

from group_coordinator.pipeline.bench.allocator import allocate_as_workers_do
from group_coordinator.pipeline.bench.fleet import Member
from group_coordinator.pipeline.bench.machine import (
    PARTITIONS,
    START,
    MachineGroup,
    Sample,
    commit_body,
    make_machine,
    run_batch,
    standing_objects_frozen,
)
from group_coordinator.pipeline.bench.report import Aim, Column, Report
from group_coordinator.schemas.messages import OffsetCommitRequest

HELD = (10, 100, 1_000, 10_000)
_MANY = 100
_TOPIC_PARTITIONS = 100


class HeldFigures(Struct):
    """Commits a second, `a_batch` of them in every batch, in a group that holds `held` offsets."""

    held: Annotated[int, Column("partitions held", ",.0f")]
    a_batch: Annotated[int, Column("a batch")]
    per_second: Annotated[float, Column("commits/s", ",.0f")]
    floor_per_second: Annotated[float, Column("floor", ",.0f")]
    ratio: Annotated[float, Column("ratio", ".1f")]
    state_bytes: Annotated[int, Column("state bytes", ",.0f")]
    cost_us: Annotated[float, Column("us a commit", ".0f", bar="cost")]


class CommitReport(Report):
    """Every number of held offsets; a commit names `partitions` partitions."""

    partitions: int
    figures: list[HeldFigures]

    def rows(self) -> list[HeldFigures]:
        """Every number of held offsets."""
        return self.figures

    def aims(self) -> list[Aim]:
        """A commit costs by what it commits, not by what the group holds."""
        aims = []
        for a_batch in sorted({each.a_batch for each in self.figures}):
            costs = {each.held: each.cost_us for each in self.figures if each.a_batch == a_batch}
            least, most = min(costs), max(costs)
            name = f"a commit's cost with {most:,} offsets held over {least:,}, {a_batch} a batch"
            aims.append(Aim(name, "", 2, costs[most] / costs[least]))
        return aims


def bench_commit(
    batches: int, say: Callable[[str], None], held: tuple[int, ...] = HELD
) -> CommitReport:
    """Measure batches of one commit, and a tenth as many of `_MANY`; `say` hears of progress."""
    allocate_as_workers_do()
    figures = []
    for number in held:
        say(f"commit: {number:,} partitions held")
        figures.append(_measure(number, 1, batches))
        figures.append(_measure(number, _MANY, max(1, batches // 10)))
    return CommitReport(PARTITIONS, figures)


def _measure(held: int, a_batch: int, batches: int) -> HeldFigures:
    machine = make_machine()
    group = MachineGroup(machine, "bench", 1)
    group.form(START)
    turns = itertools.cycle(range(0, held, PARTITIONS))

    def ask(_group: MachineGroup, batch: int) -> list[str]:
        (member,) = group.members
        return group.texts(
            (member, member.commit(_commit(member, next(turns), batch))) for _ in range(a_batch)
        )

    total = Sample()
    with standing_objects_frozen():
        # The group comes to hold its offsets by many small commits, as groups do in production.
        for batch in range(held // PARTITIONS // a_batch + 1):
            run_batch(machine, [group], ask, batch)
        for batch in range(batches):
            total.add(run_batch(machine, [group], ask, batch))
    cost_us = 1e6 * total.seconds / total.requests
    return HeldFigures(held, a_batch, *total.rates, len(group.state or b""), cost_us)


def _commit(member: Member, first: int, offset: int) -> OffsetCommitRequest:
    topic, index = divmod(first, _TOPIC_PARTITIONS)
    return commit_body(member, f"topic-{topic}", index, offset)
