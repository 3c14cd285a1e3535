"""Client processes: each writes the requests of its clients, and delivers their responses.

A `Producer` writes like this project's producer: a commit with an unknown outcome is retried with
the same transaction. A `ForeignWriter` has no transactions: it writes its rows again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.exceptions import DeltaError

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.followed import follow
from group_coordinator.pipeline.delta.identity import TableAway, TableReplacedError
from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.writer import AppendConflict
from group_coordinator.pipeline.tables.request_log import open_requests
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import REQUESTS, RESPONSES, to_requests
from tests.trials.simulation.world import Actor, Process

if TYPE_CHECKING:
    from random import Random

    from group_coordinator.pipeline.delta.appender import Appender
    from group_coordinator.schemas.messages import RequestEvent, Response
    from tests.trials.simulation.checks import Observer
    from tests.trials.simulation.world import World

OnAnswer = Callable[["Response"], None]

_RETRY_MS = 100.0
_UNWRITTEN = (AppendConflict, DeltaError, OSError, TableAway)
# How long a client waits for an answer that does not come, ms.
_TIMEOUT_MS = (500.0, 3_000.0)


class ClientProcess:
    """A process with clients in it: gathers their requests, and writes them every `linger_ms`.

    `reads_after_ms` is how long after an answer was written this process reads it, at most.
    """

    def __init__(
        self,
        world: World,
        process: Process,
        root: str,
        observer: Observer,
        linger_ms: float,
        reads_after_ms: float,
    ) -> None:
        self.world = world
        self.process = process
        self.actor = Actor(process, "clients")
        self.chance: Random = world.rng(process.name)
        self._observer = observer
        self._linger_ms = linger_ms
        self._reads_after_ms = reads_after_ms
        self._root = root
        self._appender = self._open()
        self._app_id: str | None = f"producer-{process.name}"
        self._version = 0
        self._batches: deque[list[RequestEvent]] = deque()
        self._gathered: list[RequestEvent] = []
        self._waiting: dict[str, OnAnswer] = {}
        self._on_lost: dict[str, Callable[[], None]] = {}
        # Whether the outcome of the first batch is unknown.
        self._is_unknown = False
        self._numbers = 0
        world.later(self.chance.uniform(0, linger_ms), Actor(process, "sender"), self._send_all)

    def new_id(self) -> str:
        """Return an id for a request."""
        self._numbers += 1
        return f"{self.process.name}-{self._numbers}"

    def send(
        self,
        event: RequestEvent,
        on_answer: OnAnswer | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """Hand a request over; `on_answer` is called with its answer.

        `on_lost` is called instead once there will be none, because its table was replaced.
        """
        self._observer.sent[event.request_id] = event
        self.world.count("requests")
        if on_answer is not None:
            self._waiting[event.request_id] = on_answer
        if on_lost is not None:
            self._on_lost[event.request_id] = on_lost
        self._gathered.append(event)

    @property
    def unsent(self) -> int:
        """How many requests were handed over and are not yet written."""
        return len(self._gathered) + sum(map(len, self._batches))

    def now_ms(self) -> int:
        """Return the process's wall clock, ms."""
        return clock_ms()

    def deliver(self, response: Response) -> None:
        """Schedule the delivery of a response to a request of this process."""
        if response.request_id in self._waiting:
            delay = self.chance.uniform(1, self._reads_after_ms)
            self.world.later(delay, self.actor, lambda: self._read(response))

    def lose(self, request_ids: Iterable[str]) -> None:
        """Learn that requests are in their table no more; their clients wait until a timeout."""
        for request_id in request_ids:
            if request_id in self._on_lost:
                self.world.later(
                    self.chance.uniform(*_TIMEOUT_MS),
                    self.actor,
                    partial(self._give_up, request_id),
                )

    def _give_up(self, request_id: str) -> None:
        on_lost = self._on_lost.pop(request_id, None)
        if on_lost is not None and self._waiting.pop(request_id, None) is not None:
            on_lost()

    def _read(self, response: Response) -> None:
        self._on_lost.pop(response.request_id, None)
        on_answer = self._waiting.pop(response.request_id, None)
        if on_answer is not None:
            on_answer(response)

    # --- writing ----------------------------------------------------------------------------------

    def _send_all(self) -> None:
        if self._gathered:
            self._batches.append(self._gathered)
            self._gathered = []
        delay = self._linger_ms
        while self._batches:
            try:
                self._write(self._batches[0])
            except _UNWRITTEN as error:
                self.world.tell(f"requests were not written: {error}")
                self._is_unknown = True
                delay = _RETRY_MS
                break
            except TableReplacedError as error:
                self._start_again(error)
                delay = _RETRY_MS
                break
            self._is_unknown = False
            self._batches.popleft()
        actor = self.world.current
        assert actor is not None
        self.world.later(delay, actor, self._send_all)

    def _open(self) -> Appender:
        self._observer.opened_requests(self.process)
        return open_requests(table_uri(self._root, REQUESTS))

    def _start_again(self, error: TableReplacedError) -> None:
        """Restart as the message advises. A batch that may have been written is dropped."""
        self.world.tell(f"opens its table again: {error}")
        self.world.count("clients told that requests was replaced")
        try:
            self._appender = self._open()
        except _UNWRITTEN as unread:
            self.world.tell(f"requests is not there yet: {unread}")
            return
        if self._is_unknown:
            self._is_unknown = False
            self.lose(event.request_id for event in self._batches.popleft())

    def _write(self, events: list[RequestEvent]) -> None:
        """Write a batch; a retry after an unknown outcome writes it once."""
        try:
            self._appender.append(to_requests(events), self._app_id, self._version)
        except _UNWRITTEN:
            self._appender.forget()
            raise
        self._version += 1


class SlowReader:
    """A follower of the responses that polls rarely, and must still get each of them once."""

    def __init__(self, world: World, process: Process, root: str, every_ms: float) -> None:
        self.read: Counter[str] = Counter()
        self._world = world
        self._tail = follow(table_uri(root, RESPONSES), ["request_id"])
        self._actor = Actor(process, "reader")
        self._every_ms = every_ms
        world.later(every_ms, self._actor, self._step)

    def _step(self) -> None:
        self.look()
        self._world.later(self._every_ms, self._actor, self._step)

    def look(self) -> None:
        """Read the rows since the last poll; after a failure the next poll reads them."""
        failed_before = self._actor.failed_reads
        try:
            rows = self._tail.poll()
        except (OSError, pa.ArrowException, LogGone) as error:
            if self._actor.failed_reads == failed_before:
                raise
            self._world.tell(f"responses were not read: {error}")
            return
        if rows is not None:
            self.read.update(rows.column("request_id").to_pylist())


class ForeignProcess(ClientProcess):
    """A writer without transactions: after an unknown outcome it writes its rows again."""

    def _write(self, events: list[RequestEvent]) -> None:
        self._appender.append(to_requests(events))

    def repeat(self, event: RequestEvent) -> None:
        """Write a request again, by mistake."""
        self.world.count("requests repeated")
        self._gathered.append(event)
