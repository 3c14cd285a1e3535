"""The promises that are held against every commit, by the names that a report gives them."""

from __future__ import annotations

from tests.trials.simulation.world import NO_BUG

ANSWERED_ONCE = "every request is answered exactly once"
COMMITTED = "what was acknowledged as committed is what a fetch returns and what the log replays to"
RECORD_FIRST = "no answer is there before its record"
RECORDED_ONCE = "a request is recorded by one batch, whoever answers it"
OFFSETS_RISE = "log offsets of a partition rise, and none is given out again"
GENERATIONS_RISE = "a group's generation never falls"
SESSIONS = "no member is given up within its session"
ONE_OWNER = "a partition has one owner"
SAME_AGAIN = "a batch that is run again decides as before"
ONE_MEMBER = "in a generation a partition is one member's"
FENCED = "nothing of an epoch is in a table after the epoch's fence"
GENERATION_FENCED = "no commit of a stale generation is accepted"
REPLACED = "nobody goes on with a table that was replaced, nor loses what was acknowledged"
ANSWERED_SOON = "once faults end every request is answered within a bound"
PROMISES = frozenset(
    {
        ANSWERED_ONCE,
        COMMITTED,
        RECORD_FIRST,
        RECORDED_ONCE,
        OFFSETS_RISE,
        GENERATIONS_RISE,
        SESSIONS,
        ONE_OWNER,
        SAME_AGAIN,
        ONE_MEMBER,
        FENCED,
        GENERATION_FENCED,
        REPLACED,
        ANSWERED_SOON,
        NO_BUG,
    }
)
