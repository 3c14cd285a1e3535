"""When the coordinator looks for requests next, told by when its answers came before.

A coordinator decides micro-batches one after the other: just after it has written the answers of a
batch it looks for requests, and takes what is there. What comes a moment later waits for a whole
batch. A client that writes when it has seen answers comes that moment later. So the requests are to
be written just before the next answers are expected.

A batch at 2,000 heartbeats/s through a gateway, medians in ms since its look for requests, on two
cores: 8 they are read, 41 its frame is there (planned, logged), 97 its groups are decided, 104 its
answers are written, 110 the next look. A client that writes upon answers had seen them at 112, and
its requests were written at 123. They were read 79 later at the median, and now 25: the p50 of an
answer was 254, and is 181.
"""

from __future__ import annotations

from collections import deque

# The intervals that are remembered, and the one of them, in the order of their lengths, after which
# the next answers are expected: to be late costs a batch, to be early a few ms for a few requests.
_REMEMBERED = 8
_EXPECTED = 2
# Fewer tell nothing.
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
