"""One consumer and its threads: the user's, and the heartbeat thread that all members share.

`coordinator.consumer` decides and has no threads. Here is the lock around each of its calls, held
for nothing else: requests leave through the heartbeat thread, answers come in through callbacks,
and a user's thread that waits is woken by either.
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
from itertools import count
from typing import TypeVar

from msgspec import Struct

from coordinator.consumer.calls import Operation
from coordinator.consumer.coordinator import ConsumerCoordinator
from coordinator.consumer.errors import CoordinatorTimeoutError
from coordinator.consumer.events import Event
from coordinator.consumer.settings import ConsumerSettings
from coordinator.consumer.state import MemberState
from pipeline.errors import Failure
from schemas.messages import RequestEvent, Response

log = logging.getLogger(__name__)

T = TypeVar("T")
Send = Callable[[RequestEvent], "Future[Response]"]

# In these a member may hear nothing for long, and nothing is wrong: the group waits for others, or
# it goes on with what it has until its session ends.
_PATIENT = (MemberState.PREPARING_REBALANCE, MemberState.STABLE)


def now_ms() -> int:
    """The time that members count by: it does not jump when the clock is set."""
    return time.monotonic_ns() // 1_000_000


class _Asked(Struct, eq=False):
    """A request on its way, and when it is given up (ms)."""

    future: Future[Response]
    until: int


class MemberDriver:
    """Drives one consumer. `wake` asks the heartbeat thread to look at it, `where` is for messages.

    `due` is when the consumer's timers want the heartbeat thread, ms; None while they do not.
    """

    def __init__(
        self, settings: ConsumerSettings, wake: Callable[[MemberDriver], None], where: str
    ) -> None:
        prefix, numbers = uuid.uuid4(), count(1)
        self.settings = settings
        self.due: int | None = None
        self._wake = wake
        self._where = where
        self._consumer = ConsumerCoordinator(
            settings, lambda: f"{prefix}-{next(numbers)}", random.random, now_ms()
        )
        self._changed = threading.Condition(threading.Lock())
        self._changes = 0
        self._outbox: deque[RequestEvent] = deque()
        self._asked: dict[str, _Asked] = {}
        # Since when nothing that was asked has been answered, ms; None if nothing is asked.
        self._silent_since: int | None = None
        self._trouble: Exception | None = None
        self._defect: Exception | None = None

    @contextmanager
    def step(self, changes: bool = False) -> Iterator[ConsumerCoordinator]:
        """The consumer for one call that only computes; what comes of it is sent and logged.

        `changes`: it is not the user's thread that calls; wake that one.
        """
        notes = []
        try:
            with self._changed:
                try:
                    yield self._consumer
                finally:
                    self._outbox.extend(self._consumer.take_requests())
                    notes = self._consumer.take_notes()
                    self.due = self._consumer.tick_deadline
                    if changes:
                        self._changes += 1
                        self._changed.notify_all()
        finally:
            for note in notes:
                log.log(logging.getLevelName(note.level.upper()), "%s", note.text)
            self._wake(self)

    @property
    def is_subscribed(self) -> bool:
        """Whether there is a subscription."""
        with self._changed:
            return self._consumer.is_subscribed

    @property
    def is_closed(self) -> bool:
        """Whether the consumer has come to its end."""
        with self._changed:
            return self._consumer.closed

    # --- the user's thread ----------------------------------------------------------------------

    def poll(self) -> tuple[Event | None, int]:
        """The next event, and a mark for `wait`. Raises ConsumerError."""
        with self.step() as consumer:
            if self._defect is not None:
                raise self._defect
            return consumer.poll(now_ms()), self._changes

    def wait(self, mark: int, until: int) -> None:
        """Wait until something has changed since the mark, or the consumer wants to be polled."""
        with self._changed:
            poll_at = self._consumer.poll_deadline
            until = until if poll_at is None else min(until, poll_at)
            left = max(0, until - now_ms()) / 1000
            self._changed.wait_for(lambda: self._changes != mark, left)

    def result(self, operation: Operation[T]) -> T:
        """Wait for a call to come to its end, which its own deadline brings; raises its error."""
        with self._changed:
            self._changed.wait_for(lambda: operation.done or self._defect is not None)
            if self._defect is not None:
                raise self._defect
            return operation.result()

    def patience_ends(self) -> int:
        """When to call this again, ms; raises CoordinatorTimeoutError if that time has come.

        It comes when nobody has answered for default.api.timeout.ms.
        """
        limit = self.settings.default_api_timeout_ms
        with self._changed:
            since = self._silent_since
            if since is None or self._consumer.state in _PATIENT:
                return now_ms() + limit
            if now_ms() < since + limit:
                return since + limit
            self._silent_since = now_ms()
        trouble = "" if self._trouble is None else f" (at last: {self._trouble})"
        raise CoordinatorTimeoutError(
            f"no coordinator answered group {self.settings.group_id!r} within "
            f"default.api.timeout.ms ({limit}): is one running on {self._where}?{trouble}"
        )

    def update_topics(self, counts: Mapping[str, int]) -> None:
        """The catalogue as it is now."""
        with self.step(changes=True) as consumer:
            consumer.update_topics(counts)

    def stop(self) -> None:
        """Wait for no more answers."""
        with self._changed:
            asked = list(self._asked.values())
            self._asked.clear()
        for one in asked:
            one.future.cancel()

    # --- the heartbeat thread -------------------------------------------------------------------

    def wants_beat(self, now: float) -> bool:
        """Whether there is something to send, or a timer has run out."""
        due = self.due
        if self._defect is not None:
            return False
        return bool(self._outbox) or (due is not None and due <= now)

    def beat(self, send: Send) -> None:
        """Let the timers act, and send what is to be sent."""
        try:
            with self.step(changes=True) as consumer:
                consumer.tick(now_ms())
        # Of one member; the others' heartbeats go on, and its user is told.
        except Exception as error:
            log.exception("a member of group %r has stopped", self.settings.group_id)
            with self._changed:
                self._defect = error
                self._changed.notify_all()
            return
        self._give_up_late()
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
            self._note_trouble(request, error)
            return
        with self._changed:
            self._asked[request.request_id] = _Asked(future, now_ms() + timeout_ms)
        future.add_done_callback(partial(self._answered, request))

    def _give_up_late(self) -> None:
        """The consumer no longer waits for these, and so nobody does."""
        now = now_ms()
        with self._changed:
            late = [key for key, asked in self._asked.items() if now >= asked.until]
            futures = [self._asked.pop(key).future for key in late]
        for future in futures:
            future.cancel()

    # --- the reader's thread --------------------------------------------------------------------

    def _answered(self, request: RequestEvent, future: Future[Response]) -> None:
        with self._changed:
            self._asked.pop(request.request_id, None)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._note_trouble(request, error)
            return
        with self.step(changes=True) as consumer:
            self._silent_since = now_ms() if self._asked else None
            consumer.response(now_ms(), future.result())

    def _note_trouble(self, request: RequestEvent, error: BaseException) -> None:
        """The request will not be answered: the consumer's own timeout tells it so."""
        log.warning("%s of group %r: %s", request.api, self.settings.group_id, error)
        self._trouble = error if isinstance(error, Exception) else RuntimeError(str(error))
