"""Requests that wait to be written, gathered into batches (Kafka's RecordAccumulator).

One accumulator holds the batches of one sender, in their order. It has no thread, lock or clock of
its own: `pipeline.client.producer` runs the threads, holds the lock and passes the time in.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from group_coordinator.schemas.messages import RequestEvent
from group_coordinator.schemas.tables import MOST_NUMBERED


class Delivery(Protocol):
    """Who is told once, in a sender's thread, that a request was written or why it was not."""

    def set_result(self, event: RequestEvent, /) -> None:
        """The request was written as `event`."""

    def set_exception(self, error: BaseException, /) -> None:
        """The request was not written."""


@dataclass(eq=False)
class RequestBatch:
    """The requests of one commit, and who is told of each.

    `created` is when the first request came, ms of a steady clock; `size` is in bytes.
    """

    created: float
    events: list[RequestEvent] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    size: int = 0


class Accumulator:
    """Batches of at most `batch_size` bytes, each ready when full or `linger_ms` old."""

    def __init__(self, batch_size: int, linger_ms: int) -> None:
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._batches: deque[RequestBatch] = deque()
        self._latest = 0
        self._stamped = 0

    def append(self, event: RequestEvent, size: int, now: float, wall_ms: int) -> RequestBatch:
        """Take a request of `size` bytes; return its batch, in which it is the last.

        `now` is the steady clock, ms. `wall_ms` is the time of day, ms: a request without a
        `sent_at` is stamped with it. Whoever waits for its delivery is added to the batch.
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
        """When the oldest batch is due to be written, ms of the steady clock; None without one."""
        if not self._batches:
            return None
        oldest = self._batches[0]
        full = len(self._batches) > 1 or oldest.size >= self._batch_size
        return oldest.created if full else oldest.created + self._linger_ms

    def take(self) -> RequestBatch:
        """Take out the oldest batch; no more requests are added to it."""
        return self._batches.popleft()

    # --- stamps ---------------------------------------------------------------------------------
    # A take-over orders the waiting requests of a group by `sent_at`. `schemas.tables` numbers the
    # requests of one commit that share a millisecond in its microseconds, up to 1,000. Two commits
    # must not share a millisecond, or their numbers would collide and requests would change places:
    # each batch begins in a new millisecond, the 1,001st request of one gets the next, and a wall
    # clock that is set back does not set the stamps back.

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
