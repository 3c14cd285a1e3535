"""Requests that wait to be written, gathered into batches: Kafka's RecordAccumulator.

One accumulator holds the batches of one sender, in their order. It has no thread, no lock and no
clock: `pipeline.client.producer` brings them.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

import msgspec

from schemas.messages import RequestEvent
from schemas.tables import MOST_NUMBERED


class Delivery(Future[RequestEvent]):
    """The future of a request. It cannot be cancelled: the request goes with its batch."""

    def cancel(self) -> bool:
        """Do nothing; return False."""
        return False


@dataclass(eq=False)
class Batch:
    """Requests for one commit, and the futures of those who wait for it.

    `created` is when the first came, ms of a steady clock; `size` is in bytes.
    """

    created: float
    events: list[RequestEvent] = field(default_factory=list)
    futures: list[Delivery] = field(default_factory=list)
    size: int = 0


class Accumulator:
    """Batches of at most `batch_size` bytes, each ready when full or `linger_ms` old."""

    def __init__(self, batch_size: int, linger_ms: int) -> None:
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._batches: deque[Batch] = deque()
        self._latest = 0
        self._stamped = 0

    def append(self, event: RequestEvent, size: int, now: float, wall_ms: int) -> Batch:
        """Take a request of `size` bytes; return its batch, in which it is the last.

        `now` is the steady clock, ms, and `wall_ms` the time of day, which a request without a
        `sent_at` is stamped with. Its future is completed by whoever writes the batch, and cannot
        be cancelled.
        """
        if not self._batches or self._batches[-1].size + size > self._batch_size:
            self._batches.append(Batch(now))
            self._begin_stamps()
        batch = self._batches[-1]
        if event.sent_at is None:
            event = msgspec.structs.replace(event, sent_at=self._stamp(wall_ms))
        batch.events.append(event)
        batch.futures.append(Delivery())
        batch.size += size
        return batch

    def ready_at(self) -> float | None:
        """When the oldest batch is to be written, ms of the steady clock; None if there is none."""
        if not self._batches:
            return None
        oldest = self._batches[0]
        full = len(self._batches) > 1 or oldest.size >= self._batch_size
        return oldest.created if full else oldest.created + self._linger_ms

    def take(self) -> Batch:
        """Take the oldest batch out; nothing is added to it any more."""
        return self._batches.popleft()

    # --- stamps ---------------------------------------------------------------------------------
    # The coordinator orders the requests of a group by `sent_at`. Those of one commit that share a
    # millisecond are numbered in its microseconds, up to a thousand; so two commits never share a
    # millisecond, a thousand and first request gets the next one, and a clock that is put back
    # stands still for us.

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
