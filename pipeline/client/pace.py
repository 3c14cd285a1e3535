"""When a sender's next batch is written, if sooner than its linger ends.

Times are ms of one steady clock, which the caller passes in.
"""

from __future__ import annotations

import math

# The least time between two batches: each commit costs every reader a file.
LEAST_MS = 25
# A batch is written so much earlier than it must be: one that is late waits for a whole
# micro-batch.
EARLIER_MS = 5


class Pace:
    """A sender's pace: batches that hasten, and batches that meet a reader.

    A batch that is to meet a reader is written shortly before it reads. If the reader is later than
    it was expected, what has come since then is written `LEAST_MS` later, then twice as long later,
    and so on: a reader that does not come at all leaves the linger alone.
    """

    def __init__(self) -> None:
        self._taken_at = -math.inf
        self._write_ms = 0.0
        self._hastens = False
        self._reads_at = math.inf
        self._again_ms = LEAST_MS
        self._has_taken = False

    def hasten(self) -> None:
        """Write what waits now; nobody is known to read at any time."""
        self._hastens = True
        self._reads_at = math.inf

    def meet(self, reads_at: float | None) -> None:
        """A reader reads now, and next at `reads_at`, None if that is not known.

        Where nothing was written since the last call, it finds nothing now and goes on looking:
        what waits hastens, and so it does where the next time is not known.
        """
        self._hastens |= reads_at is None or not self._has_taken
        self._has_taken = False
        self._reads_at = math.inf if reads_at is None else reads_at
        self._again_ms = LEAST_MS

    def ready_at(self, lingers_until: float) -> float:
        """When the next batch is to be taken, at the end of its linger at the latest."""
        due = -math.inf if self._hastens else self._reads_at - self._write_ms - EARLIER_MS
        return min(lingers_until, max(due, self._taken_at + LEAST_MS))

    def taken(self, now: float) -> None:
        """A batch is going to be written."""
        if now >= self._reads_at - self._write_ms - EARLIER_MS:
            self._reads_at = now + self._again_ms + self._write_ms + EARLIER_MS
            self._again_ms *= 2
        self._taken_at, self._hastens, self._has_taken = now, False, True

    def written(self, now: float) -> None:
        """The batch was written, or could not be."""
        self._write_ms = now - self._taken_at
