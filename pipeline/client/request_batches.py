"""Batches of unwritten requests, and the time at which each is written.

Pure: no thread, lock or clock. `request_producer` passes the time: ms of one monotonic clock,
unless a docstring says otherwise. Source: Kafka's RecordAccumulator.

A coordinator decides micro-batches one after the other. Directly after it has written the answers
of a micro-batch, it reads the requests that are there. So a client that writes only after it has
seen answers is a moment late, and waits for a whole micro-batch. Requests should be written just
before the next answers are expected.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from group_coordinator.schemas.messages import RequestEvent
from group_coordinator.schemas.tables import MOST_NUMBERED


class Delivery(Protocol):
    """Receiver of a request's write outcome. The sender's thread calls one method, once."""

    def set_result(self, event: RequestEvent, /) -> None:
        """Complete the delivery: the request was written as `event`."""

    def set_exception(self, error: BaseException, /) -> None:
        """Fail the delivery: the request was not written."""


@dataclass(eq=False)
class RequestBatch:
    """The requests of one commit, and the delivery of each.

    `created` is the time of the first request, ms of a monotonic clock. `size` is in bytes.
    """

    created: float
    events: list[RequestEvent] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    size: int = 0


class RequestAccumulator:
    """Batches of at most `batch_size` bytes, each ready when full or `linger_ms` old.

    A single request that is larger gets its own batch.
    """

    def __init__(self, batch_size: int, linger_ms: int) -> None:
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._batches: deque[RequestBatch] = deque()
        self._latest = 0
        self._stamped = 0

    def append(self, event: RequestEvent, size: int, now: float, wall_ms: int) -> RequestBatch:
        """Append a request of `size` bytes to the last batch; return the batch.

        `now` is the time of the monotonic clock, ms. `wall_ms` is the wall clock time, ms, for a
        request without a `sent_at`. The caller adds the delivery to the batch.
        """
        if not self._batches or self._batches[-1].size + size > self._batch_size:
            self._batches.append(RequestBatch(now))
            self._begin_stamps()
        batch = self._batches[-1]
        if event.sent_at is None:
            event = msgspec.structs.replace(event, sent_at=self._stamp(wall_ms))
        batch.events.append(event)
        batch.size += size
        return batch

    def ready_at(self) -> float | None:
        """Return when the oldest batch is due, ms of the monotonic clock; None without a batch."""
        if not self._batches:
            return None
        oldest = self._batches[0]
        full = len(self._batches) > 1 or oldest.size >= self._batch_size
        return oldest.created if full else oldest.created + self._linger_ms

    def take(self) -> RequestBatch:
        """Remove and return the oldest batch; no more requests are added to it."""
        return self._batches.popleft()

    # --- stamps ---------------------------------------------------------------------------------
    # A take-over orders the pending requests of a group by `sent_at`. `schemas.tables` numbers up
    # to 1,000 requests of a commit that share a millisecond, in its microseconds. The numbers of
    # two commits must not collide, so each batch begins in a new millisecond, and the 1,001st
    # request of a millisecond gets the next one. If the wall clock is set back, the stamps still
    # increase.

    def _begin_stamps(self) -> None:
        self._latest += 1
        self._stamped = 0

    def _stamp(self, wall_ms: int) -> int:
        if wall_ms > self._latest:
            self._latest, self._stamped = wall_ms, 0
        elif self._stamped == MOST_NUMBERED:
            self._latest, self._stamped = self._latest + 1, 0
        self._stamped += 1
        return self._latest


# The minimum time between two batches: each commit is one more file for every reader.
MIN_INTERVAL_MS = 25
# The safety margin before the reader's poll: a batch that is late waits for a whole micro-batch.
SAFETY_MARGIN_MS = 5


class WritePacer:
    """The times of a sender's batches: at the end of the linger, or shortly before a reader's poll.

    A batch is written so that its commit ends shortly before the reader polls. If the poll is late,
    the requests that arrived since are written after `MIN_INTERVAL_MS`, then after twice that time,
    and so on. So if the reader never polls, the linger soon decides alone.
    """

    def __init__(self) -> None:
        self._taken_at = -math.inf
        self._write_ms = 0.0
        self._is_urgent = False
        self._next_poll_at = math.inf
        self._retry_ms = MIN_INTERVAL_MS
        self._has_batch = False

    def hasten(self) -> None:
        """Make pending requests due now, and forget the time of the reader's next poll."""
        self._is_urgent = True
        self._next_poll_at = math.inf

    def on_poll(self, next_poll_at: float | None) -> None:
        """Record that a reader polls now, and next at `next_poll_at`, None if unknown.

        Pending requests are due now if `next_poll_at` is unknown. They are also due if nothing was
        written since the last call, because the reader then finds nothing and polls again at once.
        """
        self._is_urgent |= next_poll_at is None or not self._has_batch
        self._has_batch = False
        self._next_poll_at = math.inf if next_poll_at is None else next_poll_at
        self._retry_ms = MIN_INTERVAL_MS

    def ready_at(self, lingers_until: float) -> float:
        """Return when to take the next batch: at the end of its linger, or earlier."""
        due = (
            -math.inf if self._is_urgent else self._next_poll_at - self._write_ms - SAFETY_MARGIN_MS
        )
        return min(lingers_until, max(due, self._taken_at + MIN_INTERVAL_MS))

    def batch_taken(self, now: float) -> None:
        """Record that a batch was taken, and will be written."""
        if now >= self._next_poll_at - self._write_ms - SAFETY_MARGIN_MS:
            self._next_poll_at = now + self._retry_ms + self._write_ms + SAFETY_MARGIN_MS
            self._retry_ms *= 2
        self._taken_at, self._is_urgent, self._has_batch = now, False, True

    def batch_written(self, now: float) -> None:
        """Record that the write of the batch has ended, successful or not."""
        self._write_ms = now - self._taken_at


# The number of intervals kept, and the index of the estimate among them, the shortest first. A
# short one is chosen because a late request waits for a whole micro-batch, whereas an early write
# only misses the requests that come after it.
_WINDOW = 8
_ESTIMATE_INDEX = 2
# With fewer intervals there is no estimate.
_MIN_INTERVALS = 3


class PollEstimator:
    """Estimator of the times of answers, from the intervals between earlier ones (ms)."""

    def __init__(self) -> None:
        self._last_answers_at: float | None = None
        self._intervals: deque[float] = deque(maxlen=_WINDOW)

    def on_answers(self, now: float) -> float | None:
        """Record that answers came at `now`; return when the next are expected, None if unknown."""
        if self._last_answers_at is not None:
            self._intervals.append(now - self._last_answers_at)
        self._last_answers_at = now
        if len(self._intervals) < _MIN_INTERVALS:
            return None
        expected = sorted(self._intervals)[min(_ESTIMATE_INDEX, len(self._intervals) - 1)]
        return now + expected

    def pause(self) -> None:
        """Discard the current interval: without requests in flight it measures no micro-batch."""
        self._last_answers_at = None
