"""Producer of requests: one per process, shared by all its members.

It is modelled on Kafka's producer, with a Delta table as the broker. `send` adds requests to
batches in memory. A sender thread writes each batch in one commit, which is the acknowledgement,
and then completes the futures of its requests.

Exactly once: each sender has the application id of a Delta transaction identifier, and each of its
batches has the next version. If the outcome of a commit is unknown, the sender retries it with the
same version, which Delta writes once.

In order: commits to one table are serial, and a sender has one commit in flight. With several
senders (`max.in.flight.requests.per.connection`), a hash of the group id selects the sender, so no
request overtakes another one of its group.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from group_coordinator.coordinator.consumer.backoff import ExponentialBackoff
from group_coordinator.coordinator.producer.record_accumulator import BufferPool
from group_coordinator.pipeline import background
from group_coordinator.pipeline.client.request_batches import (
    Delivery,
    RequestAccumulator,
    RequestBatch,
    WritePacer,
)
from group_coordinator.pipeline.client.request_producer_settings import ProducerSettings
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import AppendConflict
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables import RequestSigner, ensure_table, open_requests, table_uri
from group_coordinator.schemas.messages import RequestEvent
from group_coordinator.schemas.tables import REQUESTS, to_requests

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta import Appender

log = logging.getLogger(__name__)

_RETRIABLE = (AppendConflict, DeltaError, OSError)
# Errors of a missing table or folder, which a retry would not create.
_MISSING = (TableNotFoundError, FileNotFoundError, NotADirectoryError)
# Errors of encoding a request: a number is too large, or a text is not valid Unicode.
_UNWRITABLE = (msgspec.MsgspecError, pa.ArrowException, OverflowError, TypeError, ValueError)

_encode = msgspec.msgpack.Encoder().encode


class ProducerClosed(Failure):
    """The producer is closed: it accepts no requests, and has not written the pending ones."""


class BufferExhausted(Failure):
    """`buffer.memory` stayed full for `max.block.ms`."""


class RequestTooLarge(Failure):
    """A request that is larger than `buffer.memory`."""


class UnwritableRequest(Failure):
    """A request with a value that its column cannot hold; the message says which request."""


class DeliveryFailed(Failure):
    """A request that could not be written; the message has the reason and the attempts."""


class DeliveryTimeout(DeliveryFailed):
    """A request that could not be written within `delivery.timeout.ms`."""


def wait_for_memory(
    memory: BufferPool,
    freed: threading.Condition,
    size: int,
    max_block_ms: int,
    is_closed: Callable[[], bool],
    where: str,
) -> None:
    """Wait until `size` bytes fit; the longest waiting thread goes first.

    The caller holds the lock of `freed`. `where` is the root or table of the producer. Raises
    BufferExhausted and ProducerClosed.
    """
    ticket = object()
    memory.blocked.append(ticket)
    try:
        if not freed.wait_for(
            lambda: is_closed() or memory.fits(size, ticket), max_block_ms / 1000
        ):
            raise BufferExhausted(
                f"buffer.memory ({memory.total} bytes) was full for max.block.ms "
                f"({max_block_ms} ms): is {where} writable?"
            )
        if is_closed():
            raise ProducerClosed(f"the producer of {where} is closed")
    finally:
        memory.blocked.remove(ticket)
        freed.notify_all()


class _DeliveryFuture(Future[RequestEvent]):
    """The future of a request. It cannot be cancelled: the request is written with its batch."""

    def cancel(self) -> bool:
        return False


class _Lane:
    """One sender's batches, table and transaction identifier."""

    def __init__(self, settings: ProducerSettings, lock: threading.Lock, appender: Appender):
        self.accumulator = RequestAccumulator(settings.batch_size, settings.linger_ms)
        self.appender = appender
        self.app_id = f"producer-{uuid.uuid4()}"
        self.version = 0
        self.wake = threading.Condition(lock)
        self.pacer = WritePacer()


class RequestProducer:
    """A thread-safe producer for the `requests` table of a root, which it creates if missing.

    `open_log` opens the table for one sender. A producer that is still open is closed when the
    interpreter exits. Raises SchemaMismatch, LaterRelease and KeysError.
    """

    def __init__(
        self,
        root: str,
        settings: ProducerSettings | None = None,
        open_log: Callable[[str], Appender] = open_requests,
    ) -> None:
        ensure_table(root, REQUESTS)
        self._guard = background.ProcessGuard("RequestProducer")
        self.settings = settings or ProducerSettings()
        self._uri = table_uri(root, REQUESTS)
        self._signer = RequestSigner(self.settings.principal, self.settings.request_key_file)
        self._backoff = ExponentialBackoff(self.settings, random.random)
        self._lock = threading.Lock()
        self._memory_freed = threading.Condition(self._lock)
        self._delivered = threading.Condition(self._lock)
        self._memory = BufferPool(self.settings.buffer_memory)
        self._undelivered: set[RequestBatch] = set()
        self._flushing = 0
        self._closed = False
        self._abandoned = threading.Event()
        self._lanes = [
            _Lane(self.settings, self._lock, open_log(self._uri))
            for _ in range(self.settings.max_in_flight)
        ]
        self._threads = [
            background.start("request-producer", partial(self._run, lane), self._stop)
            for lane in self._lanes
        ]

    def __enter__(self) -> RequestProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def signs(self) -> bool:
        """Whether requests are signed."""
        return self._signer.signs

    # --- called by users of the producer --------------------------------------------------------

    def send(self, event: RequestEvent) -> Future[RequestEvent]:
        """Accept a request; its commit completes the future with the request as written.

        A request without a `sent_at` is stamped. `send` blocks while `buffer.memory` is full, and
        raises BufferExhausted after `max.block.ms`. It raises RequestTooLarge, UnwritableRequest
        and ProducerClosed at once.

        The future fails with DeliveryFailed, DeliveryTimeout, UnwritableRequest or ProducerClosed,
        and cannot be cancelled. Its callbacks run in the sender's thread: they must be short, and
        not wait for another request.
        """
        future = _DeliveryFuture()
        self.submit(event, future)
        return future

    def submit(self, event: RequestEvent, delivery: Delivery) -> None:
        """Accept a request as `send` does, and complete `delivery` with the outcome.

        It creates no future, which would cost nearly as much as the request's row.
        """
        try:
            event = self._signer.sign(event)
            size = len(_encode(event))
        except _UNWRITABLE as error:
            raise UnwritableRequest(f"request {event.request_id!r}: {error}") from error
        if size > self.settings.buffer_memory:
            raise RequestTooLarge(
                f"request {event.request_id!r} has {size} bytes: more than buffer.memory, "
                f"{self.settings.buffer_memory}"
            )
        lane = self._lanes[self._lane_of(event)]
        self._guard.check()
        with self._lock:
            if self._closed or not self._memory.fits(size):
                # Lingering batches are written at once, to free their memory.
                self._wake_all()
                wait_for_memory(
                    self._memory,
                    self._memory_freed,
                    size,
                    self.settings.max_block_ms,
                    lambda: self._closed,
                    self._uri,
                )
            batch = lane.accumulator.append(event, size, _now_ms(), clock_ms())
            self._memory.allocate(size)
            batch.deliveries.append(delivery)
            if len(batch.events) == 1:
                self._undelivered.add(batch)
                lane.wake.notify()
            elif batch.size >= self.settings.batch_size:
                lane.wake.notify()

    def hasten(self) -> None:
        """Write pending requests now, but not sooner than `MIN_INTERVAL_MS` after the last batch.

        Call it if the coordinator will read requests soon: one that lingers then waits for a whole
        micro-batch.
        """
        with self._lock:
            for lane in self._lanes:
                if lane.accumulator.ready_at() is not None:
                    lane.pacer.hasten()
                    lane.wake.notify()

    def on_poll(self, next_poll_at: float | None) -> None:
        """Record that the stream reads now, and again at `next_poll_at`; write shortly before that.

        `next_poll_at` is in ms of `time.monotonic`, None if unknown (`WritePacer.on_poll`).
        """
        with self._lock:
            for lane in self._lanes:
                lane.pacer.on_poll(next_poll_at)
                lane.wake.notify()

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write all requests sent so far without linger, and wait until they are written.

        Return False if `timeout_s` ran out first.
        """
        self._guard.check()
        with self._lock:
            waiting = set(self._undelivered)
            self._flushing += 1
            self._wake_all()
            try:
                return self._delivered.wait_for(lambda: not waiting & self._undelivered, timeout_s)
            finally:
                self._flushing -= 1

    def close(self, timeout_s: float | None = None) -> None:
        """Accept no more requests, write the pending ones, and stop.

        Requests that are not written within `timeout_s` fail with ProducerClosed; a commit in
        flight is completed in the background. None waits for all requests, at most
        `delivery.timeout.ms`. A second call does nothing.
        """
        self._guard.check()
        self._stop()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        self._abandoned.set()

    def _stop(self) -> None:
        with self._lock:
            self._closed = True
            self._wake_all()
            self._memory_freed.notify_all()

    def _lane_of(self, event: RequestEvent) -> int:
        if len(self._lanes) == 1:
            return 0
        return zlib.crc32((event.group_id or "").encode()) % len(self._lanes)

    def _wake_all(self) -> None:
        for lane in self._lanes:
            lane.wake.notify()

    # --- a sender's thread ----------------------------------------------------------------------

    def _run(self, lane: _Lane) -> None:
        while (batch := self._next(lane)) is not None:
            error: Exception | None = None
            try:
                self._write(lane, batch)
            # Any failure must fail the deliveries of the batch, and must not stop the sender.
            except Exception as raised:
                log.warning("%s", raised)
                error = raised
            lane.version += 1
            with self._lock:
                lane.pacer.batch_written(_now_ms())
                self._memory.deallocate(batch.size)
                self._memory_freed.notify_all()
            for event, delivery in zip(batch.events, batch.deliveries, strict=True):
                if error is None:
                    delivery.set_result(event)
                else:
                    delivery.set_exception(error)
            with self._lock:
                self._undelivered.discard(batch)
                self._delivered.notify_all()

    def _next(self, lane: _Lane) -> RequestBatch | None:
        """Wait for the next batch and return it; None when the producer is closed and empty."""
        with self._lock:
            while True:
                lingers_until = lane.accumulator.ready_at()
                if lingers_until is None:
                    if self._closed:
                        return None
                    lane.wake.wait()
                    continue
                ready_at = lane.pacer.ready_at(lingers_until)
                now = _now_ms()
                if ready_at <= now or self._closed or self._flushing or self._memory.blocked:
                    lane.pacer.batch_taken(now)
                    return lane.accumulator.take()
                lane.wake.wait((ready_at - now) / 1000)

    def _write(self, lane: _Lane, batch: RequestBatch) -> None:
        """Write a batch, with retries.

        Raises DeliveryFailed and DeliveryTimeout, and ProducerClosed after `close` timed out.
        """
        settings = self.settings
        rows = self._rows(batch)
        if not batch.events:
            return
        deadline = batch.created + settings.delivery_timeout_ms
        last_error: Exception | None = None
        for attempt in range(settings.retries + 1):
            if self._abandoned.is_set():
                raise ProducerClosed(
                    f"the producer was closed: {self._describe_failure(batch, attempt, last_error)}"
                )
            if _now_ms() >= deadline:
                raise DeliveryTimeout(
                    f"delivery.timeout.ms ({settings.delivery_timeout_ms} ms) is over: "
                    f"{self._describe_failure(batch, attempt, last_error)}"
                )
            try:
                if last_error is not None:
                    # The failed attempt may have been written, so read the newest version.
                    lane.appender.forget()
                lane.appender.append(rows, lane.app_id, lane.version)
            except _MISSING as error:
                raise DeliveryFailed(self._describe_failure(batch, attempt + 1, error)) from error
            except _RETRIABLE as error:
                log.info("attempt %d to write to %s: %s", attempt + 1, self._uri, error)
                last_error = error
            else:
                return
            left = max(0.0, deadline - _now_ms())
            self._abandoned.wait(min(left, self._backoff(attempt)) / 1000)
        raise DeliveryFailed(
            self._describe_failure(batch, settings.retries + 1, last_error)
        ) from last_error

    def _describe_failure(self, batch: RequestBatch, attempts: int, error: Exception | None) -> str:
        cause = "" if error is None else f": {' '.join(str(error).split())}"
        count = f"{len(batch.events)} request{'s' if len(batch.events) > 1 else ''}"
        tries = f"{attempts} attempt{'' if attempts == 1 else 's'}"
        return f"{count} could not be written to {self._uri} in {tries}{cause}"

    def _rows(self, batch: RequestBatch) -> pa.Table:
        """Return the batch as rows; remove and fail the requests that no row can hold."""
        try:
            return to_requests(batch.events)
        except _UNWRITABLE:
            kept: list[tuple[RequestEvent, Delivery]] = []
            for event, delivery in zip(batch.events, batch.deliveries, strict=True):
                error = _encoding_error(event)
                if error is None:
                    kept.append((event, delivery))
                else:
                    delivery.set_exception(UnwritableRequest(f"{event.request_id!r}: {error}"))
            batch.events = [event for event, _ in kept]
            batch.deliveries = [delivery for _, delivery in kept]
            return to_requests(batch.events)


def _encoding_error(event: RequestEvent) -> Exception | None:
    try:
        to_requests([event])
    except _UNWRITABLE as error:
        return error
    return None


def _now_ms() -> float:
    return time.monotonic() * 1000
