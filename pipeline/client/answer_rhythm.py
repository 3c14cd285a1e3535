"""When the coordinator looks for requests next, told by when its answers came before.

A coordinator decides micro-batches one after the other: just after it has written the answers of a
batch it looks for requests, and takes what is there. What comes a moment later waits for a whole
batch. A client that writes when it has seen answers comes that moment later. So the requests are to
be written just before the next answers are expected.
"""

from __future__ import annotations

from collections import deque

# So many intervals are remembered, and the next answers are expected after this one of them,
# counted from the shortest. A request that is written too late waits for a whole batch; one that is
# written too early misses the few that come after it.
_REMEMBERED = 8
_EXPECTED = 2
# With fewer intervals no time is expected.
_LEAST = 3


class AnswerRhythm:
    """The times between answers, as long as there is always a request that waits. Times in ms."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._intervals: deque[float] = deque(maxlen=_REMEMBERED)

    def answered(self, now: float) -> float | None:
        """Answers have come; return when the next ones are expected, None if that is not known."""
        if self._last is not None:
            self._intervals.append(now - self._last)
        self._last = now
        if len(self._intervals) < _LEAST:
            return None
        expected = sorted(self._intervals)[min(_EXPECTED, len(self._intervals) - 1)]
        return now + expected

    def pause(self) -> None:
        """No request waited for an answer: the time until the next ones is no batch's."""
        self._last = None
