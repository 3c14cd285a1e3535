"""The schedule of faults of a run: drawn from the seed beforehand, so that one can be left out.

Faults of files, standstills and clocks are those of `tests.trials.simulation.faults`.
"""

from __future__ import annotations

from random import Random

from group_coordinator.schemas.tables import ACLS, GATEWAYS, TOPIC_INDEX, TOPIC_TABLES, TOPICS
from tests.trials.simulation import recreated, troubles
from tests.trials.simulation.faults import (
    COMMIT,
    HALTS,
    KILL,
    READS,
    REPLACE,
    SET_CLOCK,
    STOP,
    Fault,
)
from tests.trials.simulation.files import DATA_FILE, OUTCOMES, PAUSE, STAND_STILL, CommitFault
from tests.trials.simulation.recreated import Replacement
from tests.trials.simulation.troubles import Halt, ReadFault

# A name for the table of any topic.
RECORDS = "a topic's records"
# The weight of each kind in the draw.
KINDS = {COMMIT: 20, KILL: 4, STOP: 2, SET_CLOCK: 3, READS: 24, HALTS: 14, REPLACE: 8}
_TABLES = (
    *[RECORDS] * 8,
    DATA_FILE,
    DATA_FILE,
    None,
    GATEWAYS.name,
    ACLS.name,
    TOPICS.name,
    TOPIC_INDEX.name,
    TOPIC_INDEX.name,
)
# The number of operations before a fault: those of an append, of some polls, or of a start.
_AFTER = (0, 5, 60)
_TIMES = (1, 1, 1, 2, 5)
# Lengths of pauses, ms: shorter than a client waits, longer, and longer than a lease.
_STILL_MS = (400.0, 2_500.0, 6_000.0, 12_000.0)
_KILLED = 0.3
# Tables and how each is replaced. A catalogue is not created again, because the topics have tables.
# An older copy of a topic's table has its id, so a gateway that starts later serves it.
REPLACED = (
    *((ACLS.name, how) for how in recreated.HOWS),
    *((GATEWAYS.name, how) for how in recreated.HOWS),
    (RECORDS, recreated.EMPTY),
    (RECORDS, recreated.AWAY),
    (TOPICS.name, recreated.AWAY),
    (TOPIC_TABLES.name, recreated.AWAY),
    (TOPIC_INDEX.name, recreated.AWAY),
)
# For how long a table is away, or how old its copy is, ms: also for longer than a lease.
_AWAY_MS = (0.0, 500.0, 3_000.0, 12_000.0)


def draw_faults(
    chance: Random, count: int, begin_ms: float, end_ms: float, gateways: int
) -> list[Fault]:
    """Draw a schedule: so many faults between two times, in their order."""
    drawn = []
    for _ in range(count):
        at = chance.uniform(begin_ms, end_ms)
        kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
        number = chance.randint(1, gateways)
        ms = chance.choice((-90_000, -3_000, -300, 500, 4_000, 90_000))
        commit = _commit_fault(chance, f"gateway {number}") if kind == COMMIT else None
        reads = _read_fault(chance, f"gateway {number}") if kind == READS else None
        halts = _halts(chance, gateways) if kind == HALTS else ()
        replaced = _replacement(chance) if kind == REPLACE else None
        choice = chance.randrange(12)
        drawn.append(Fault(at, kind, number, choice, ms, commit, reads, halts, replaced))
    return sorted(drawn, key=lambda fault: fault.at)


def _replacement(chance: Random) -> Replacement:
    table, how = chance.choice(REPLACED)
    return Replacement(table, how, chance.choice(_AWAY_MS))


def _commit_fault(chance: Random, process: str) -> CommitFault:
    pause_ms = chance.choice((200.0, 1_500.0, 6_000.0))
    outcome = chance.choice(OUTCOMES)
    waits = outcome in (PAUSE, STAND_STILL)
    return CommitFault(process, chance.choice(_TABLES), outcome, pause_ms if waits else 0.0)


def _read_fault(chance: Random, process: str) -> ReadFault:
    after = chance.randint(0, chance.choice(_AFTER))
    kind = chance.choice(troubles.KINDS)
    # A hidden file is the same as a missing one, and a gateway reads twice before it reports it
    # missing.
    times = 1 if kind == troubles.AWAY else chance.choice(_TIMES)
    return ReadFault(process, kind, after, times)


def _halts(chance: Random, gateways: int) -> tuple[Halt, ...]:
    """Return the pauses or kills of one gateway or of two at a time."""
    count = min(gateways, chance.choice((1, 1, 2)))
    ms = None if chance.random() < _KILLED else chance.choice(_STILL_MS)
    return tuple(
        Halt(f"gateway {number}", chance.randint(0, chance.choice(_AFTER)), ms)
        for number in chance.sample(range(1, gateways + 1), count)
    )
