"""Estimate of the coordinator's next poll for requests, from the times of earlier answers.

A coordinator decides micro-batches one after the other. Directly after it has written the answers
of a micro-batch, it reads the requests that are there. A request that arrives a moment later waits
for a whole micro-batch. A client that writes only after it has seen answers is always that moment
late. So requests should be written just before the next answers are expected.
"""

from __future__ import annotations

from collections import deque

# The number of intervals kept, and the index of the estimate among them, the shortest first.
# A short interval is chosen because a request that is written too late waits for a whole
# micro-batch. A write that is too early only misses the few requests that come after it.
_REMEMBERED = 8
_EXPECTED = 2
# With fewer intervals there is no estimate.
_LEAST = 3


class AnswerRhythm:
    """The intervals between answers while requests are always in flight. Times in ms."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._intervals: deque[float] = deque(maxlen=_REMEMBERED)

    def answered(self, now: float) -> float | None:
        """Record that answers came at `now`; return when the next are expected, None if unknown."""
        if self._last is not None:
            self._intervals.append(now - self._last)
        self._last = now
        if len(self._intervals) < _LEAST:
            return None
        expected = sorted(self._intervals)[min(_EXPECTED, len(self._intervals) - 1)]
        return now + expected

    def pause(self) -> None:
        """End the interval, because no request was in flight: it does not measure a micro-batch."""
        self._last = None
