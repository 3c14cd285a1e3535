"""The schedule of faults of a run: drawn from the seed beforehand, so that one can be left out."""

from __future__ import annotations

from random import Random

from msgspec import Struct

from group_coordinator.schemas.tables import (
    COORDINATORS,
    GROUP_EVENTS,
    OFFSETS_TOPIC,
    REQUESTS,
    RESPONSES,
)
from tests.trials.simulation import engine, recreated, troubles
from tests.trials.simulation.files import (
    ANSWER_LOST,
    CRASH_AFTER,
    CRASH_BEFORE,
    DATA_FILE,
    FAIL,
    OUTCOMES,
    PAUSE,
    STAND_STILL,
    UNKNOWN,
    CommitFault,
)
from tests.trials.simulation.recreated import Replacement
from tests.trials.simulation.troubles import Halt, ReadFault

KILL = "kill"
LOSE_CHECKPOINT = "lose the streaming checkpoint"
RESTORE_CHECKPOINT = "copy the streaming checkpoint, or put the copy back"
SET_CLOCK = "set the clock"
MOVE = "move a partition"
COMMIT = "commit fault"
STOP = "stop in order"
TWIN = "a second start"
RETUNE = "other settings"
COMPACT = "compact"
RETAIN = "retain"
SILENCE = "clients end"
TOPICS = "change the catalogue of topics"
READS = "reads that fail"
HALTS = "processes that stop"
ZOMBIE = "a batch that outlives its lease"
REPLACE = "replace a table"
# The weight of each kind in the draw.
KINDS = {
    COMMIT: 10,
    KILL: 3,
    LOSE_CHECKPOINT: 2,
    RESTORE_CHECKPOINT: 4,
    SET_CLOCK: 3,
    MOVE: 5,
    STOP: 3,
    TWIN: 1,
    RETUNE: 1,
    COMPACT: 2,
    RETAIN: 2,
    SILENCE: 1,
    TOPICS: 2,
    READS: 30,
    HALTS: 14,
    ZOMBIE: 20,
    REPLACE: 6,
}
_NODE_TABLES = (
    None,
    OFFSETS_TOPIC.name,
    GROUP_EVENTS.name,
    RESPONSES.name,
    COORDINATORS.name,
    DATA_FILE,
    engine.PLANNED,
    engine.DECIDED,
    engine.WRITTEN,
)
_POINTS = (engine.PLANNED, engine.DECIDED, engine.WRITTEN)
# Points at which a batch is paused until other nodes have taken over.
_IN_A_BATCH = (engine.PLANNED, engine.DECIDED, DATA_FILE)
_OUTLIVED_MS = (2_500.0, 4_000.0, 6_000.0)
# The number of operations before a fault: those of a poll, of a batch, or of a start.
_AFTER = (0, 5, 60)
# Numbers of reads in a row that fail: one, or several, so that several starts fail at once.
_TIMES = (1, 1, 1, 2, 5)
# Lengths of pauses, ms: shorter than a lease, longer, or longer than a session.
_STILL_MS = (400.0, 1_500.0, 2_500.0, 6_000.0)
_KILLED = 0.15
# For how long a table is away, or how old its copy is, ms.
_AWAY_MS = (0.0, 300.0, 2_000.0, 5_000.0)
# The time until a replacement is complete: writers have finished, and all processes have noticed.
_SETTLING_MS = 6_000.0


class Fault(Struct, frozen=True):
    """A fault at a true time, ms.

    `node_id` is the target, `number` a partition or a choice, `ms` a step of a clock. `halts` pause
    several processes at the same time. A batch that outlives its lease is one of a node that owns
    partitions at that time, chosen by `number`.
    """

    at: float
    kind: str
    node_id: int = 0
    number: int = 0
    ms: int = 0
    commit: CommitFault | None = None
    reads: ReadFault | None = None
    halts: tuple[Halt, ...] = ()
    replaced: Replacement | None = None

    @property
    def until(self) -> float:
        """When it is over, or nearly so, ms."""
        return self.at if self.replaced is None else self.at + self.replaced.ms + _SETTLING_MS

    def line(self) -> str:
        """Return the fault as a line of the log."""
        parts = [f"{self.at / 1000:8.3f} s  {self.kind}"]
        if self.commit is not None:
            parts.append(f"{self.commit.process}, {self.commit.table or 'any table'}:")
            parts.append(self.commit.outcome)
            if self.commit.pause_ms:
                parts.append(f"for {self.commit.pause_ms:.0f} ms")
        elif self.reads is not None:
            parts.append(self.reads.line())
        elif self.halts:
            parts.append("; ".join(halt.line() for halt in self.halts))
        elif self.replaced is not None:
            parts.append(self.replaced.line())
        elif self.kind == MOVE:
            parts.append(f"{self.number} to node {self.node_id}")
        elif self.kind == SET_CLOCK:
            parts.append(f"of node {self.node_id} by {self.ms} ms")
        elif self.node_id:
            parts.append(f"node {self.node_id}")
        return " ".join(parts)


def draw_faults(
    chance: Random,
    count: int,
    wanted: frozenset[str],
    begin_ms: float,
    end_ms: float,
    nodes: int,
    partitions: int,
    clients: int,
) -> list[Fault]:
    """Draw a schedule: so many faults between two times, in their order; `wanted` none is all."""
    kinds = [kind for kind in KINDS if not wanted or kind in wanted]
    weights = [KINDS[kind] for kind in kinds]
    drawn = []
    for _ in range(count):
        at = chance.uniform(begin_ms, end_ms)
        kind = chance.choices(kinds, weights)[0]
        node_id = chance.randint(1, nodes)
        number = chance.randrange(partitions)
        ms = chance.choice((-90_000, -20_000, -3_000, -300, 500, 4_000, 15_000))
        commit = _commit_fault(chance, node_id, clients) if kind == COMMIT else None
        if kind == ZOMBIE:
            where, still_ms = chance.choice(_IN_A_BATCH), chance.choice(_OUTLIVED_MS)
            commit = CommitFault("an owner", where, STAND_STILL, still_ms)
        if kind == SILENCE:
            number = chance.randrange(clients)
        reads = _read_fault(chance, nodes, clients) if kind == READS else None
        halts = _halts(chance, nodes, clients) if kind == HALTS else ()
        replaced = _replacement(chance) if kind == REPLACE else None
        drawn.append(Fault(at, kind, node_id, number, ms, commit, reads, halts, replaced))
    return sorted(drawn, key=lambda fault: fault.at)


def _replacement(chance: Random) -> Replacement:
    table, how = chance.choice(recreated.TABLES), chance.choice(recreated.HOWS)
    return Replacement(table, how, chance.choice(_AWAY_MS))


def _read_fault(chance: Random, nodes: int, clients: int) -> ReadFault:
    process = f"node {chance.randint(1, nodes)}"
    if chance.random() < 0.3:
        others = [f"clients {number}" for number in range(clients)]
        process = chance.choice([*others, "operator", "slow reader"])
    after = chance.randint(0, chance.choice(_AFTER))
    return ReadFault(process, chance.choice(troubles.KINDS), after, chance.choice(_TIMES))


def _halts(chance: Random, nodes: int, clients: int) -> tuple[Halt, ...]:
    """Return the pauses or kills of one or two processes, mostly nodes."""
    processes = [f"node {number}" for number in range(1, nodes + 1)]
    if chance.random() < 0.3:
        processes += [f"clients {number}" for number in range(clients)]
    count = min(len(processes), chance.choice((1, 2)))
    ms = chance.choice(_STILL_MS)
    # Without its clients a run would take long to come to its end.
    is_killed = chance.random() < _KILLED and len(processes) == nodes
    return tuple(
        Halt(process, chance.randint(0, chance.choice(_AFTER)), None if is_killed else ms)
        for process in chance.sample(processes, count)
    )


def _commit_fault(chance: Random, node_id: int, clients: int) -> CommitFault:
    pause_ms = chance.choice((200.0, 1_500.0, 6_000.0))
    if chance.random() < 0.25:
        client = chance.randrange(clients)
        outcome = chance.choice((FAIL, ANSWER_LOST, UNKNOWN, PAUSE))
        return CommitFault(f"clients {client}", REQUESTS.name, outcome, pause_ms)
    table = chance.choice(_NODE_TABLES)
    outcome = chance.choice(OUTCOMES)
    if table in _POINTS:
        outcome = chance.choice((CRASH_BEFORE, CRASH_AFTER, PAUSE))
    waits = outcome in (PAUSE, STAND_STILL)
    return CommitFault(f"node {node_id}", table, outcome, pause_ms if waits else 0.0)
