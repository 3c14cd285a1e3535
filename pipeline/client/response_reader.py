"""The reader of responses: one per process, for all the members that wait in it.

One thread follows the `responses` table and completes the future of each request whose answer it
finds. Answers to other processes cost their share of reading a file, and no Python object.

The futures are `concurrent.futures`': a thread takes `result(timeout)`, a callback goes to
`add_done_callback` (it runs in the reader's thread and must be short), and asyncio awaits
`asyncio.wrap_future(future)`.
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
from group_coordinator.pipeline.delta.followed import follow
from group_coordinator.pipeline.delta.log import LogGone, is_table
from group_coordinator.pipeline.delta.parquet_file import newest_first
from group_coordinator.pipeline.delta.table import local_folder
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.messages import Response
from group_coordinator.schemas.tables import RESPONSES, from_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from group_coordinator.pipeline.delta.followed import Tail
    from group_coordinator.schemas.messages import RequestEvent

log = logging.getLogger(__name__)

# What reading a table can raise.
_UNREADABLE = (OSError, DeltaError, pa.ArrowException)
# A tail cannot tell a table without news from a deleted one: check whether it exists this often, s;
# in an object store that is a list, which costs far more than a look.
_LOOK_EVERY_S, _STORE_LOOK_EVERY_S = 1.0, 60.0
# In an object store each look is a request that is paid for, and slow. So looks are so many times
# as far apart as on a disk: while requests wait, and while none does.
_STORE_FACTOR, _STORE_IDLE_FACTOR = 10, 4
# How much longer the time between two looks becomes with each that finds nothing: on a disk an
# answer that comes after t ms is found t / 40 later, and in a store looks are few.
_SLOWER, _STORE_SLOWER = 1.05, 1.5
# For how long looks may fail before those who wait are told, s. In a store none may: a request is
# repeated for longer than that before it counts as failed.
_PATIENCE_S = 2.0


class NoTables(Failure):
    """The root does not exist, or no coordinator has run on it yet, so that it has no tables."""


class ResponsesLost(Failure):
    """The `responses` table cannot be read; the request may have been answered all the same."""


class Waiter(Protocol):
    """Who waits for an answer, such as a `concurrent.futures.Future`; told in the reader's thread.

    Exactly one of the methods that set is called, once, and only if the waiter still waits.
    """

    def set_running_or_notify_cancel(self) -> bool:
        """Whether the waiter still waits."""

    def set_result(self, response: Response, /) -> None:
        """Take the answer."""

    def set_exception(self, error: BaseException, /) -> None:
        """Hear why there is none."""


class _Awaited(NamedTuple):
    waiter: Waiter
    asked: RequestEvent | None


class ResponseReader:
    """Completes the futures of a root's requests with the answers that are written from now on.

    A poll of the table is one attempt to open a file. While a request waits, the reader polls every
    `shortest_ms`, and after polls without answers less and less often, down to every `longest_ms`;
    while none waits, every `idle_ms`. In an object store the first two are ten times as long, and
    the last one four times. Before answers are handed out, `hear` is called with them, and after it
    `on_answers`, in the reader's thread. Raises NoTables.
    """

    def __init__(
        self,
        root: str,
        shortest_ms: float = 2,
        longest_ms: float = 20,
        idle_ms: float = 500,
        on_answers: Callable[[], None] = lambda: None,
        hear: Callable[[Sequence[Response]], None] = lambda _: None,
    ) -> None:
        self._root = root
        self._on_answers = on_answers
        self._hear = hear
        self._uri = table_uri(root, RESPONSES)
        is_store = local_folder(self._uri) is None
        unit_s = (_STORE_FACTOR if is_store else 1) / 1000
        idle_s = (_STORE_IDLE_FACTOR if is_store else 1) / 1000
        self._shortest, self._longest = shortest_ms * unit_s, longest_ms * unit_s
        self._idle = idle_ms * idle_s
        self._slower = _STORE_SLOWER if is_store else _SLOWER
        self._patience_s = 0.0 if is_store else _PATIENCE_S
        self._look_every_s = _STORE_LOOK_EVERY_S if is_store else _LOOK_EVERY_S
        self._lock = threading.Lock()
        self._called = threading.Condition(self._lock)
        self._waiting: dict[str, _Awaited] = {}
        self._tail: Tail | None = self._follow_first()
        self._interval = self._shortest
        self._closed = False
        self._thread = background.start("response-reader", self._run, self._stop)

    def __enter__(self) -> ResponseReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def register(self, request_id: str, asked: RequestEvent | None = None) -> Future[Response]:
        """Return a future of a request's answer; to be called before the request is sent.

        An answer to another group's or API's request than `asked`, of the same id, is passed over:
        somebody wrote a row with an id that they had read.

        The future fails with ResponsesLost if the table becomes unreadable. Cancel it to stop
        waiting. Raises ResponsesLost if the table cannot be read or the reader is closed, and
        ValueError if the request has a future already.
        """
        future: Future[Response] = Future()
        self.expect(request_id, future, asked)
        future.add_done_callback(lambda done: self._forget_cancelled(request_id, done))
        return future

    def expect(self, request_id: str, waiter: Waiter, asked: RequestEvent | None = None) -> None:
        """Tell the waiter of a request's answer, as `register` tells its future.

        To stop waiting, `forget`.
        """
        with self._lock:
            if self._closed:
                raise ResponsesLost(f"the reader of {self._uri} is closed")
            if request_id in self._waiting:
                raise ValueError(f"request {request_id!r} is waited for already")
            if self._tail is None:
                # Before the request is sent: a tail that began later could miss its answer.
                self._tail = self._follow_again()
            if not self._waiting:
                # While others wait, the reader looks anyway: it is not woken for each request.
                self._interval = self._shortest
                self._called.notify()
            self._waiting[request_id] = _Awaited(waiter, asked)

    @property
    def waiting(self) -> int:
        """How many requests are waited for."""
        return len(self._waiting)

    def fail(self, request_id: str, error: BaseException) -> None:
        """Tell whoever waits for a request, if anybody does: there will be no answer."""
        with self._lock:
            awaited = self._waiting.pop(request_id, None)
        if awaited is not None and awaited.waiter.set_running_or_notify_cancel():
            awaited.waiter.set_exception(error)

    def forget(self, request_id: str) -> None:
        """Wait no more for a request's answer."""
        with self._lock:
            self._waiting.pop(request_id, None)

    def close(self) -> None:
        """Stop; futures without an answer fail with ResponsesLost."""
        self._stop()
        self._thread.join()

    def _stop(self) -> None:
        with self._lock:
            self._closed = True
            self._called.notify()

    def _forget_cancelled(self, request_id: str, future: Future[Response]) -> None:
        if future.cancelled():
            with self._lock:
                awaited = self._waiting.get(request_id)
                if awaited is not None and awaited.waiter is future:
                    del self._waiting[request_id]

    # --- the reader's thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._follow_on()
        finally:
            self._fail_all(f"the reader of {self._uri} was closed")

    def _follow_on(self) -> None:
        looked_at = time.monotonic()
        failing_since: float | None = None
        while True:
            with self._lock:
                if not self._closed:
                    self._called.wait(self._interval if self._waiting else self._idle)
                if self._closed:
                    return
                tail = self._tail
            if tail is None:
                continue
            is_due = time.monotonic() - looked_at > self._look_every_s
            try:
                has_looked = self._take_in(tail) or (is_due and self._look())
            # Any failure that lasts must reach the futures that wait; the next `register` follows
            # anew. Until then the tail is where it was: no answer is passed over.
            except Exception as error:
                now = time.monotonic()
                failing_since = now if failing_since is None else failing_since
                if now - failing_since < self._patience_s:
                    log.info("responses of %s are looked at again: %s", self._root, error)
                    self._slow_down()
                    continue
                log.warning("responses of %s: %s", self._root, error)
                self._fail_all(f"{self._uri} cannot be read: {error}")
            else:
                if has_looked:
                    looked_at = time.monotonic()
                else:
                    self._slow_down()
            failing_since = None

    def _take_in(self, tail: Tail) -> bool:
        """Hand out the answers that are new, and move on behind them; whether there were any."""
        try:
            rows, behind = tail.look()
        except LogGone:
            behind = self._catch_up()
        else:
            if rows is None:
                return False
            self._deliver(rows)
        with self._lock:
            self._tail = behind
        return True

    def _catch_up(self) -> Tail:
        """Hand out the answers that are in the table; return a tail from its newest version on.

        This process was suspended for longer than the log is kept. The files are read newest first,
        until every request that waits now has its answer or waits no more.
        """
        # Before the table is read: an answer that comes between the two is then read twice.
        behind = self._follow()
        with self._lock:
            missing = set(self._waiting)
        for rows in newest_first(self._uri, RESPONSES.schema.names) if missing else ():
            self._deliver(rows)
            with self._lock:
                missing &= self._waiting.keys()
            if not missing:
                break
        return behind

    def _slow_down(self) -> None:
        with self._lock:
            self._interval = min(self._longest, self._interval * self._slower)

    def _look(self) -> bool:
        """Return True; raise FileNotFoundError if the table does not exist any more."""
        folder = local_folder(self._uri)
        there = is_table(self._uri) if folder is None else (folder / "_delta_log").exists()
        if not there:
            raise FileNotFoundError(f"there is no table at {self._uri}")
        return True

    def _deliver(self, rows: pa.Table) -> None:
        with self._lock:
            self._interval = self._shortest
            waiting = list(self._waiting)
        # Whoever sends requests needs the lock: it is held for as little as can be.
        wanted = pa.array(waiting, pa.string())
        ours = rows.filter(pc.is_in(rows.column("request_id"), value_set=wanted))
        responses = from_arrow(Response, ours)
        self._hear(responses)
        with self._lock:
            waiters = [self._waiter_of(each) for each in responses]
        for waiter, response in zip(waiters, responses, strict=True):
            if waiter is not None and waiter.set_running_or_notify_cancel():
                waiter.set_result(response)
        if responses:
            self._on_answers()

    def _waiter_of(self, response: Response) -> Waiter | None:
        """Who waits for an answer, and waits no more; with the lock."""
        awaited = self._waiting.get(response.request_id)
        if awaited is None:
            return None
        asked = awaited.asked
        if asked is not None and (asked.group_id, asked.api) != (response.group_id, response.api):
            return None
        del self._waiting[response.request_id]
        return awaited.waiter

    def _fail_all(self, message: str) -> None:
        with self._lock:
            self._tail = None
            waiting = list(self._waiting)
        for request_id in waiting:
            self.fail(request_id, ResponsesLost(message))

    def _follow_first(self) -> Tail:
        try:
            return self._follow()
        except TableNotFoundError:
            folder = local_folder(self._root)
            absent = folder is not None and not folder.exists()
            why = "there is no root" if absent else "no coordinator has run on"
            # Not with delta-rs's error as its cause: a user need not know which table is missing.
            raise NoTables(
                f"{why} {self._root}{'' if absent else ' yet'}: start a coordinator with "
                f"`group-coordinator run --root {self._root}`"
            ) from None

    def _follow(self) -> Tail:
        return follow(table_uri(self._root, RESPONSES), RESPONSES.schema.names)

    def _follow_again(self) -> Tail:
        try:
            return self._follow()
        except _UNREADABLE as error:
            raise ResponsesLost(f"{self._uri} cannot be read: {error}") from error
