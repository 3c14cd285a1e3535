"""Pace of a sender: it decides when a batch is written before its linger ends.

Times are ms of one monotonic clock, which the caller passes.
"""

from __future__ import annotations

import math

# The minimum time between two batches: each commit is one more file for every reader.
LEAST_MS = 25
# The safety margin before the reader's poll: a batch that is late waits for a whole micro-batch.
EARLIER_MS = 5


class Pace:
    """The times of a sender's batches: as soon as possible, or shortly before a reader's poll.

    A batch is written so that its commit ends shortly before the reader polls. If the poll is later
    than expected, the requests that arrived since are written after `LEAST_MS`, then after twice
    that time, and so on. So if the reader never polls, the linger soon decides alone.
    """

    def __init__(self) -> None:
        self._taken_at = -math.inf
        self._write_ms = 0.0
        self._hastens = False
        self._reads_at = math.inf
        self._again_ms = LEAST_MS
        self._has_taken = False

    def hasten(self) -> None:
        """Make pending requests due now, and forget the time of the reader's next poll."""
        self._hastens = True
        self._reads_at = math.inf

    def meet(self, reads_at: float | None) -> None:
        """Record that a reader polls now, and next at `reads_at`, None if unknown.

        If nothing was written since the last call, the reader finds nothing now and polls again at
        once. Then pending requests are due now. They are also due now if `reads_at` is unknown.
        """
        self._hastens |= reads_at is None or not self._has_taken
        self._has_taken = False
        self._reads_at = math.inf if reads_at is None else reads_at
        self._again_ms = LEAST_MS

    def ready_at(self, lingers_until: float) -> float:
        """Return when to take the next batch: at the end of its linger, or earlier."""
        due = -math.inf if self._hastens else self._reads_at - self._write_ms - EARLIER_MS
        return min(lingers_until, max(due, self._taken_at + LEAST_MS))

    def taken(self, now: float) -> None:
        """Record that a batch was taken, and will be written."""
        if now >= self._reads_at - self._write_ms - EARLIER_MS:
            self._reads_at = now + self._again_ms + self._write_ms + EARLIER_MS
            self._again_ms *= 2
        self._taken_at, self._hastens, self._has_taken = now, False, True

    def written(self, now: float) -> None:
        """Record that the write of the batch has ended, successful or not."""
        self._write_ms = now - self._taken_at
