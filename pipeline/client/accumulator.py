"""Accumulator of unwritten requests, in batches. Source: Kafka's RecordAccumulator.

An accumulator holds the batches of one sender, in order. It has no thread, lock or clock:
`pipeline.client.producer` runs the threads, holds the lock and passes the time.
"""

from __future__ import annotations

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


class Accumulator:
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
        """Append a request of `size` bytes to the last batch, and return the batch.

        `now` is the time of the monotonic clock, ms. `wall_ms` is the wall clock time, ms: it
        stamps a request without a `sent_at`. The caller adds the delivery to the returned batch.
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
    # A take-over orders the pending requests of a group by `sent_at`. `schemas.tables` numbers the
    # requests of a commit that share a millisecond, up to 1,000, in the microseconds of `sent_at`.
    # Two commits must not share a millisecond: their numbers would collide, and requests would
    # change their order. So each batch begins in a new millisecond, and the 1,001st request of a
    # millisecond gets the next one. If the wall clock is set back, the stamps still increase.

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
