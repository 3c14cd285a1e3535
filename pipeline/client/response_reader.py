"""The reader of responses: one per process, for all the members that wait in it.

One thread follows the `responses` table and hands each answer to whoever waits for its request. The
answers of other processes cost their share of reading a file, and nothing in Python.

The futures are `concurrent.futures`': a thread takes `result(timeout)`, a callback goes to
`add_done_callback` (it runs in the reader's thread, and is to be short), and asyncio awaits
`asyncio.wrap_future(future)`.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from pipeline.delta.table import local_folder
from pipeline.delta.tail import follow
from pipeline.errors import Failure
from pipeline.tables.store import table_uri
from schemas.messages import Response
from schemas.tables import RESPONSES, from_arrow

if TYPE_CHECKING:
    from pipeline.delta.tail import Tail

log = logging.getLogger(__name__)

# What a table can do to its reader.
_UNREADABLE = (OSError, DeltaError, pa.ArrowException)
# A tail does not tell a table without news from one that is gone: look after this long, s.
_LOOK_EVERY_S = 1.0


class NoTables(Failure):
    """A root on which no coordinator has ever run."""


class ResponsesLost(Failure):
    """The `responses` table cannot be read; whoever waited may have been answered."""


class ResponseReader:
    """Hands the answers of a root's requests to those who wait for them, from now on.

    A look is one attempt to open a file. While somebody waits it is repeated every `shortest_ms`,
    and less and less often while nothing comes, up to every `longest_ms`; while nobody does, every
    `idle_ms`. Raises NoTables.
    """

    def __init__(
        self, root: str, shortest_ms: float = 2, longest_ms: float = 20, idle_ms: float = 500
    ) -> None:
        self._root = root
        self._uri = table_uri(root, RESPONSES)
        self._shortest, self._longest = shortest_ms / 1000, longest_ms / 1000
        self._idle = idle_ms / 1000
        self._lock = threading.Lock()
        self._called = threading.Condition(self._lock)
        self._waiting: dict[str, Future[Response]] = {}
        self._tail: Tail | None = self._follow_first()
        self._interval = self._shortest
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="response-reader", daemon=True)
        self._thread.start()

    def __enter__(self) -> ResponseReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def register(self, request_id: str) -> Future[Response]:
        """Wait for the answer to a request; to be called before the request is sent.

        The future fails with ResponsesLost if the table cannot be read any more. Cancel it to give
        up. Raises ResponsesLost if there is no table to follow, or the reader is closed; ValueError
        if the request is waited for already.
        """
        future: Future[Response] = Future()
        with self._lock:
            if self._closed:
                raise ResponsesLost(f"the reader of {self._uri} is closed")
            if request_id in self._waiting:
                raise ValueError(f"request {request_id!r} is waited for already")
            if self._tail is None:
                # Before the request is sent, or its answer could be missed.
                self._tail = self._follow_again()
            self._waiting[request_id] = future
            self._interval = self._shortest
            self._called.notify()
        future.add_done_callback(lambda done: self._forget(request_id, done))
        return future

    def fail(self, request_id: str, error: BaseException) -> None:
        """Tell who waits for a request, if anybody does, that there will be no answer."""
        with self._lock:
            future = self._waiting.pop(request_id, None)
        if future is not None and future.set_running_or_notify_cancel():
            future.set_exception(error)

    def close(self) -> None:
        """Stop; whoever waits still is told so by ResponsesLost."""
        with self._lock:
            self._closed = True
            self._called.notify()
        self._thread.join()
        self._fail_all(f"the reader of {self._uri} was closed")

    def _forget(self, request_id: str, future: Future[Response]) -> None:
        if future.cancelled():
            with self._lock:
                if self._waiting.get(request_id) is future:
                    del self._waiting[request_id]

    # --- the reader's thread --------------------------------------------------------------------

    def _run(self) -> None:
        looked_at = time.monotonic()
        while True:
            with self._lock:
                if not self._closed:
                    self._called.wait(self._interval if self._waiting else self._idle)
                if self._closed:
                    return
                tail = self._tail
            if tail is None:
                continue
            try:
                rows = tail.poll()
                if rows is not None:
                    self._deliver(rows)
                elif time.monotonic() - looked_at > _LOOK_EVERY_S:
                    self._look()
                else:
                    self._slow_down()
                    continue
                looked_at = time.monotonic()
            # Whatever it is, those who wait must hear of it; the next to wait begins anew.
            except Exception as error:
                log.warning("responses of %s: %s", self._root, error)
                self._fail_all(f"{self._uri} cannot be read: {error}")

    def _slow_down(self) -> None:
        with self._lock:
            self._interval = min(self._longest, self._interval * 1.5)

    def _look(self) -> None:
        """Raise FileNotFoundError if the table is gone."""
        folder = local_folder(self._uri)
        there = (
            DeltaTable.is_deltatable(self._uri)
            if folder is None
            else (folder / "_delta_log").exists()
        )
        if not there:
            raise FileNotFoundError(f"there is no table at {self._uri}")

    def _deliver(self, rows: pa.Table) -> None:
        with self._lock:
            self._interval = self._shortest
            wanted = pa.array(list(self._waiting), pa.string())
        ours = rows.filter(pc.is_in(rows.column("request_id"), value_set=wanted))
        for response in from_arrow(Response, ours):
            with self._lock:
                future = self._waiting.pop(response.request_id, None)
            if future is not None and future.set_running_or_notify_cancel():
                future.set_result(response)

    def _fail_all(self, message: str) -> None:
        with self._lock:
            self._tail = None
            waiting = list(self._waiting)
        for request_id in waiting:
            self.fail(request_id, ResponsesLost(message))

    def _follow_first(self) -> Tail:
        try:
            return self._follow()
        except TableNotFoundError as error:
            raise NoTables(
                f"no coordinator has run on {self._root} yet: start one with "
                f"`group-coordinator run --root {self._root}`"
            ) from error

    def _follow(self) -> Tail:
        return follow(table_uri(self._root, RESPONSES), RESPONSES.schema.names)

    def _follow_again(self) -> Tail:
        try:
            return self._follow()
        except _UNREADABLE as error:
            raise ResponsesLost(f"{self._uri} cannot be read: {error}") from error
