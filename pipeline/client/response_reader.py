"""Reader of responses: one per process, shared by all its members.

One thread follows the `responses` table, and completes the futures of the requests that are
answered. Answers to other processes are filtered in Arrow, so they cost no Python object.

Threads call `result(timeout)` of a future (`concurrent.futures`), and asyncio awaits
`asyncio.wrap_future(future)`. Callbacks run in the reader's thread and must be short.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError, TableNotFoundError

from group_coordinator.pipeline import background
from group_coordinator.pipeline.delta import LogGone, follow, is_table, local_folder, newest_first
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables import table_uri
from group_coordinator.schemas.messages import Response
from group_coordinator.schemas.tables import RESPONSES, from_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from group_coordinator.pipeline.delta import TableTail
    from group_coordinator.schemas.messages import RequestEvent

log = logging.getLogger(__name__)

# Errors of reading a table.
_UNREADABLE = (OSError, DeltaError, pa.ArrowException)
# The interval of checks whether the table exists, s: a tail cannot tell a deleted table from one
# without new versions. In an object store a check is a LIST request, which costs far more than a
# poll.
_CHECK_INTERVAL_S, _STORE_CHECK_INTERVAL_S = 1.0, 60.0
# In an object store each poll is a slow request that costs money. So the intervals between polls
# are longer by these factors, while requests are in flight and while none is.
_STORE_FACTOR, _STORE_IDLE_FACTOR = 10, 4
# The backoff factor of the interval after each poll that finds nothing. On a disk, an answer that
# comes after t ms is found about t / 40 ms later. In an object store polls are few.
_BACKOFF_FACTOR, _STORE_BACKOFF_FACTOR = 1.05, 1.5
# How long polls may fail before the waiters fail, s. In an object store the first failure counts,
# because its client has already retried the request for longer than that.
_RETRY_BUDGET_S = 2.0


class NoTables(Failure):
    """The root does not exist, or has no tables because no coordinator has run on it yet."""


class ResponsesLost(Failure):
    """The `responses` table cannot be read, so it is unknown whether the request was answered."""


class Waiter(Protocol):
    """A receiver of an answer, such as a `concurrent.futures.Future`.

    One of `set_result` and `set_exception` is called, once, and only if the waiter still waits.
    Answers come in the reader's thread.
    """

    def set_running_or_notify_cancel(self) -> bool:
        """Return whether the waiter still waits."""

    def set_result(self, response: Response, /) -> None:
        """Complete the waiter with the answer."""

    def set_exception(self, error: BaseException, /) -> None:
        """Fail the waiter with the reason why there is no answer."""


class _PendingRequest(NamedTuple):
    waiter: Waiter
    request: RequestEvent | None


class ResponseReader:
    """A reader that completes the futures of requests with the answers written from now on.

    A poll of the table is one attempt to open a file. While requests are in flight, the interval
    between polls grows from `shortest_ms` to `longest_ms` while there are no new rows. While no
    request is in flight, it is `idle_ms`. In an object store the first two are ten times as long,
    and `idle_ms` four times.

    The reader's thread calls `on_responses` with the answers before it delivers them, and
    `on_answers` afterwards. Raises NoTables.
    """

    def __init__(
        self,
        root: str,
        shortest_ms: float = 2,
        longest_ms: float = 20,
        idle_ms: float = 500,
        on_answers: Callable[[], None] = lambda: None,
        on_responses: Callable[[Sequence[Response]], None] = lambda _: None,
    ) -> None:
        self._guard = background.ProcessGuard("ResponseReader")
        self._root = root
        self._on_answers = on_answers
        self._on_responses = on_responses
        self._uri = table_uri(root, RESPONSES)
        is_store = local_folder(self._uri) is None
        unit_s = (_STORE_FACTOR if is_store else 1) / 1000
        idle_s = (_STORE_IDLE_FACTOR if is_store else 1) / 1000
        self._shortest, self._longest = shortest_ms * unit_s, longest_ms * unit_s
        self._idle = idle_ms * idle_s
        self._backoff_factor = _STORE_BACKOFF_FACTOR if is_store else _BACKOFF_FACTOR
        self._retry_budget_s = 0.0 if is_store else _RETRY_BUDGET_S
        self._check_interval_s = _STORE_CHECK_INTERVAL_S if is_store else _CHECK_INTERVAL_S
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._waiting: dict[str, _PendingRequest] = {}
        self._tail: TableTail | None = self._open_tail()
        self._interval = self._shortest
        self._closed = False
        self._thread = background.start("response-reader", self._run, self._stop)

    def __enter__(self) -> ResponseReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def register(self, request_id: str, request: RequestEvent | None = None) -> Future[Response]:
        """Return a future of a request's answer. Call it before the request is sent.

        If `request` is given, an answer with the same id but another group or API is ignored: it
        belongs to another client, which copied the id.

        The future fails with ResponsesLost if the table becomes unreadable. Cancel it to stop
        waiting. Raises ResponsesLost if the table cannot be read or the reader is closed, and
        ValueError if the request is already registered.
        """
        future: Future[Response] = Future()
        self.expect(request_id, future, request)
        future.add_done_callback(lambda done: self._forget_cancelled(request_id, done))
        return future

    def expect(self, request_id: str, waiter: Waiter, request: RequestEvent | None = None) -> None:
        """Complete `waiter` with a request's answer, as `register` completes its future.

        Call `forget` to stop waiting. Raises the errors of `register`.
        """
        self._guard.check()
        with self._lock:
            if self._closed:
                raise ResponsesLost(f"the reader of {self._uri} is closed")
            if request_id in self._waiting:
                raise ValueError(f"request {request_id!r} is already registered")
            if self._tail is None:
                # Start the tail before the request is sent: a later tail could miss its answer.
                self._tail = self._reopen_tail()
            if not self._waiting:
                # While other requests are in flight, the reader polls anyway and is not woken.
                self._interval = self._shortest
                self._wake.notify()
            self._waiting[request_id] = _PendingRequest(waiter, request)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for an answer."""
        return len(self._waiting)

    def fail(self, request_id: str, error: BaseException) -> None:
        """Fail the waiter of a request, if there is one."""
        with self._lock:
            pending = self._waiting.pop(request_id, None)
        if pending is not None and pending.waiter.set_running_or_notify_cancel():
            pending.waiter.set_exception(error)

    def forget(self, request_id: str) -> None:
        """Stop waiting for a request's answer."""
        with self._lock:
            self._waiting.pop(request_id, None)

    def close(self) -> None:
        """Stop the thread; futures without an answer fail with ResponsesLost."""
        self._guard.check()
        self._stop()
        self._thread.join()

    def _stop(self) -> None:
        with self._lock:
            self._closed = True
            self._wake.notify()

    def _forget_cancelled(self, request_id: str, future: Future[Response]) -> None:
        if future.cancelled():
            with self._lock:
                pending = self._waiting.get(request_id)
                if pending is not None and pending.waiter is future:
                    del self._waiting[request_id]

    # --- the reader's thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._poll_forever()
        finally:
            self._fail_all(f"the reader of {self._uri} was closed")

    def _poll_forever(self) -> None:
        checked_at = time.monotonic()
        failing_since: float | None = None
        while True:
            with self._lock:
                if not self._closed:
                    self._wake.wait(self._interval if self._waiting else self._idle)
                if self._closed:
                    return
                tail = self._tail
            if tail is None:
                continue
            is_due = time.monotonic() - checked_at > self._check_interval_s
            try:
                has_polled = self._poll(tail) or (is_due and self._check_table())
            # A failure that lasts must fail the waiters; the next `register` starts a new tail.
            # Until then the tail keeps its position, so no answer is missed.
            except Exception as error:
                now = time.monotonic()
                failing_since = now if failing_since is None else failing_since
                if now - failing_since < self._retry_budget_s:
                    log.info(
                        "a poll of the responses of %s failed and is retried: %s", self._root, error
                    )
                    self._back_off()
                    continue
                log.warning("polls of the responses of %s failed: %s", self._root, error)
                self._fail_all(f"{self._uri} cannot be read: {error}")
            else:
                if has_polled:
                    checked_at = time.monotonic()
                else:
                    self._back_off()
            failing_since = None

    def _poll(self, tail: TableTail) -> bool:
        """Deliver the new answers and advance the tail; return False if there are no new rows."""
        try:
            rows, next_tail = tail.look()
        except LogGone:
            next_tail = self._catch_up()
        else:
            if rows is None:
                return False
            self._deliver(rows)
        with self._lock:
            self._tail = next_tail
        return True

    def _catch_up(self) -> TableTail:
        """Deliver the answers that the table has; return a tail from its newest version.

        It is needed if this process was suspended for longer than the log's retention. Files are
        read newest first, until all waiting requests are answered.
        """
        # Start the tail before the table is read, so that no answer between the two is missed. Such
        # an answer is read twice.
        next_tail = self._new_tail()
        with self._lock:
            missing = set(self._waiting)
        for rows in newest_first(self._uri, RESPONSES.schema.names) if missing else ():
            self._deliver(rows)
            with self._lock:
                missing &= self._waiting.keys()
            if not missing:
                break
        return next_tail

    def _back_off(self) -> None:
        with self._lock:
            self._interval = min(self._longest, self._interval * self._backoff_factor)

    def _check_table(self) -> bool:
        """Return True. Raises FileNotFoundError if the table no longer exists."""
        folder = local_folder(self._uri)
        exists = is_table(self._uri) if folder is None else (folder / "_delta_log").exists()
        if not exists:
            raise FileNotFoundError(f"there is no table at {self._uri}")
        return True

    def _deliver(self, rows: pa.Table) -> None:
        with self._lock:
            self._interval = self._shortest
            waiting = list(self._waiting)
        # The lock is not held here, because senders of requests need it.
        request_ids = pa.array(waiting, pa.string())
        own_rows = rows.filter(pc.is_in(rows.column("request_id"), value_set=request_ids))
        responses = from_arrow(Response, own_rows)
        self._on_responses(responses)
        with self._lock:
            waiters = [self._waiter_of(response) for response in responses]
        for waiter, response in zip(waiters, responses, strict=True):
            if waiter is not None and waiter.set_running_or_notify_cancel():
                waiter.set_result(response)
        if responses:
            self._on_answers()

    def _waiter_of(self, response: Response) -> Waiter | None:
        """Remove and return the waiter of an answer, or return None; call it with the lock.

        An answer to another group or API than the request's has no waiter.
        """
        pending = self._waiting.get(response.request_id)
        if pending is None:
            return None
        sent = pending.request
        if sent is not None and (sent.group_id, sent.api) != (response.group_id, response.api):
            return None
        del self._waiting[response.request_id]
        return pending.waiter

    def _fail_all(self, message: str) -> None:
        with self._lock:
            self._tail = None
            waiting = list(self._waiting)
        for request_id in waiting:
            self.fail(request_id, ResponsesLost(message))

    def _open_tail(self) -> TableTail:
        try:
            return self._new_tail()
        except TableNotFoundError:
            folder = local_folder(self._root)
            absent = folder is not None and not folder.exists()
            why = "there is no root" if absent else "no coordinator has run on"
            # Without delta-rs's error as the cause: users need not know which table is missing.
            raise NoTables(
                f"{why} {self._root}{'' if absent else ' yet'}: start a coordinator with "
                f"`group-coordinator run --root {self._root}`"
            ) from None

    def _new_tail(self) -> TableTail:
        return follow(table_uri(self._root, RESPONSES), RESPONSES.schema.names)

    def _reopen_tail(self) -> TableTail:
        try:
            return self._new_tail()
        except _UNREADABLE as error:
            raise ResponsesLost(f"{self._uri} cannot be read: {error}") from error
