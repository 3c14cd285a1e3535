"""The promises that are held against every commit and answer, by the names that a report gives."""

from __future__ import annotations

from tests.trials.simulation.world import NO_BUG

DENSE = "offsets of a partition are dense, and each is given once"
ONCE = "what an idempotent producer sends is in a topic once, and in its order"
ACKNOWLEDGED = "an acknowledged record is in the table, where the answer says"
READ_IN_ORDER = "a consumer reads every record once and in order"
ENDS = "an end that was told is one that the log has, and is not taken back"
DENIED = "what is denied is never done, and what is allowed never denied"
DELETED = "nothing is appended to a topic after its deletion"
IDS = "a producer id is given once"
ANSWERED_SOON = "once faults end every request is answered within a bound"
PROMISES = frozenset(
    {
        DENSE,
        ONCE,
        ACKNOWLEDGED,
        READ_IN_ORDER,
        ENDS,
        DENIED,
        DELETED,
        IDS,
        ANSWERED_SOON,
        NO_BUG,
    }
)
