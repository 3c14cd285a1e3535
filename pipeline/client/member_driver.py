"""Driver of one consumer: it connects the user's thread, the heartbeat thread and the reader.

`coordinator.consumer` has no threads: a `MemberDriver` locks it during each call. The heartbeat
thread, which all members share, sends the requests, and the response reader's thread delivers the
answers. Both wake the user's thread. No lock is held while a request is sent or the user is called.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from msgspec import Struct

from group_coordinator.coordinator.consumer.calls import Operation
from group_coordinator.coordinator.consumer.consumer_coordinator import ConsumerCoordinator
from group_coordinator.coordinator.consumer.consumer_errors import CoordinatorTimeoutError
from group_coordinator.coordinator.consumer.consumer_settings import ConsumerSettings
from group_coordinator.coordinator.consumer.events import Event
from group_coordinator.coordinator.consumer.member_state import MemberState
from group_coordinator.pipeline.background import ProcessGuard
from group_coordinator.pipeline.errors import Failure
from group_coordinator.schemas.messages import RequestEvent, Response

log = logging.getLogger(__name__)

T = TypeVar("T")
Send = Callable[[RequestEvent], "Future[Response]"]

# States in which a silent coordinator is no error: a join waits for the other members, and a stable
# member keeps its partitions until its session ends. It is no error either for a consumer without a
# subscription that knows its positions, because only its commits wait.
_STATES_THAT_WAIT = (MemberState.PREPARING_REBALANCE, MemberState.STABLE)


def now_ms() -> int:
    """Return the time of the members' clock, ms.

    The clock is monotonic, so a change of the wall clock moves no deadline.
    """
    return time.monotonic_ns() // 1_000_000


class _PendingRequest(Struct, eq=False):
    """A request in flight, and the time (ms) of the consumer's request timeout."""

    future: Future[Response]
    until: int


class MemberDriver:
    """The driver of one consumer.

    `wake` notifies the heartbeat thread that the consumer may have requests to send. `where` names
    the root in messages. `due` is the consumer's earliest timer (ms), None without a timer.
    """

    def __init__(
        self, settings: ConsumerSettings, wake: Callable[[MemberDriver], None], where: str
    ) -> None:
        self.settings = settings
        self.guard = ProcessGuard("consumer")
        self.due: int | None = None
        self._wake = wake
        self._where = where
        self._consumer = ConsumerCoordinator(
            settings, lambda: str(uuid.uuid4()), random.random, now_ms()
        )
        self._changed = threading.Condition(threading.Lock())
        self._changes = 0
        self._outbox: deque[RequestEvent] = deque()
        self._in_flight: dict[str, _PendingRequest] = {}
        # Since when requests are in flight and none was answered, ms; None without such requests.
        self._silent_since: int | None = None
        self._last_error: Exception | None = None
        self._defect: Exception | None = None

    @contextmanager
    def step(self, changes: bool = False) -> Iterator[ConsumerCoordinator]:
        """Lock the consumer for one call that does not block; then queue its requests.

        `changes`: the call comes from another thread, so it wakes the user's thread.
        """
        self.guard.check()
        log_lines = []
        try:
            with self._changed:
                try:
                    yield self._consumer
                finally:
                    self._outbox.extend(self._consumer.take_requests())
                    log_lines = self._consumer.take_log_lines()
                    self.due = self._consumer.tick_deadline
                    if changes:
                        self._changes += 1
                        self._changed.notify_all()
        finally:
            for line in log_lines:
                log.log(logging.getLevelName(line.level.upper()), "%s", line.text)
            self._wake(self)

    @property
    def is_subscribed(self) -> bool:
        """Whether the consumer has a subscription."""
        with self._changed:
            return self._consumer.is_subscribed

    @property
    def is_closed(self) -> bool:
        """Whether the consumer has finished closing."""
        with self._changed:
            return self._consumer.closed

    # --- the user's thread ----------------------------------------------------------------------

    def poll(self) -> tuple[Event | None, int]:
        """Return the next event, and the number of changes for `wait`. Raises ConsumerError."""
        with self.step() as consumer:
            if self._defect is not None:
                raise self._defect
            return consumer.poll(now_ms()), self._changes

    def wait(self, mark: int, until: int) -> None:
        """Wait for a change after the number `mark`, the consumer's next poll, or `until` (ms)."""
        with self._changed:
            poll_at = self._consumer.poll_deadline
            until = until if poll_at is None else min(until, poll_at)
            left = max(0, until - now_ms()) / 1000
            self._changed.wait_for(lambda: self._changes != mark, left)

    def result(self, operation: Operation[T]) -> T:
        """Wait for an operation, until its deadline; return its result, or raise its error."""
        with self._changed:
            self._changed.wait_for(lambda: operation.done or self._defect is not None)
            if self._defect is not None:
                raise self._defect
            return operation.result()

    def silence_deadline(self) -> int:
        """Return when to check again whether the coordinator is silent, ms.

        Raises CoordinatorTimeoutError if no request was answered for default.api.timeout.ms.
        """
        limit = self.settings.default_api_timeout_ms
        with self._changed:
            since = self._silent_since
            consumer = self._consumer
            waits = consumer.is_subscribed or consumer.subscription.initializing
            if since is None or not waits or consumer.state in _STATES_THAT_WAIT:
                return now_ms() + limit
            if now_ms() < since + limit:
                return since + limit
            self._silent_since = now_ms()
        last_error = "" if self._last_error is None else f" (last error: {self._last_error})"
        raise CoordinatorTimeoutError(
            f"no coordinator answered group {self.settings.group_id!r} within "
            f"default.api.timeout.ms ({limit}): is one running on {self._where}?{last_error}"
        )

    def update_topics(self, counts: Mapping[str, int]) -> None:
        """Pass each topic's number of partitions to the consumer."""
        with self.step(changes=True) as consumer:
            consumer.update_topics(counts)

    def wake_user(self) -> None:
        """Wake the user's thread if it waits, because there may be new records."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Cancel all requests in flight."""
        with self._changed:
            futures = [pending.future for pending in self._in_flight.values()]
            self._in_flight.clear()
        for future in futures:
            future.cancel()

    # --- the heartbeat thread -------------------------------------------------------------------

    def is_due(self, now: float) -> bool:
        """Return whether a request is queued, or a timer has expired by `now` (ms)."""
        due = self.due
        if self._defect is not None:
            return False
        return bool(self._outbox) or (due is not None and due <= now)

    def send_due(self, send: Send) -> None:
        """Run the expired timers, and send the queued requests."""
        try:
            with self.step(changes=True) as consumer:
                consumer.tick(now_ms())
        # A defect of one member must not stop the heartbeats of the others. `poll` and `result`
        # raise it in the user's thread.
        except Exception as error:
            log.exception(
                "a member of group %r stopped after an unexpected error", self.settings.group_id
            )
            with self._changed:
                self._defect = error
                self._changed.notify_all()
            return
        self._cancel_expired()
        while self._outbox:
            self._send(self._outbox.popleft(), send)

    def _send(self, request: RequestEvent, send: Send) -> None:
        settings = self.settings
        joins = request.api == "join_group"
        timeout_ms = settings.join_timeout_ms if joins else settings.request_timeout_ms
        with self._changed:
            if self._silent_since is None:
                self._silent_since = now_ms()
        try:
            future = send(request)
        except Failure as error:
            self._log_failure(request, error)
            return
        with self._changed:
            self._in_flight[request.request_id] = _PendingRequest(future, now_ms() + timeout_ms)
        future.add_done_callback(partial(self._answered, request))

    def _cancel_expired(self) -> None:
        now = now_ms()
        with self._changed:
            expired = [key for key, pending in self._in_flight.items() if now >= pending.until]
            futures = [self._in_flight.pop(key).future for key in expired]
        for future in futures:
            future.cancel()

    # --- the reader's thread --------------------------------------------------------------------

    def _answered(self, request: RequestEvent, future: Future[Response]) -> None:
        with self._changed:
            self._in_flight.pop(request.request_id, None)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._log_failure(request, error)
            return
        with self.step(changes=True) as consumer:
            self._silent_since = now_ms() if self._in_flight else None
            consumer.response(now_ms(), future.result())

    def _log_failure(self, request: RequestEvent, error: BaseException) -> None:
        """Log a failed request. The consumer only notices its request timeout."""
        log.warning("%s of group %r: %s", request.api, self.settings.group_id, error)
        self._last_error = error if isinstance(error, Exception) else RuntimeError(str(error))
