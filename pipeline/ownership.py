"""The board of a root: reading it, deciding on it, and the leases that say which node is alive.

Everything is in the `coordinators` table. A decision is an append under one transaction identifier
whose version is its epoch, so Delta's own commits put decisions in a row: whoever decided on an old
board is refused. A lease is a transaction too, without rows: its version is the time at which the
node last said that it is alive, ms. So a node costs the table no rows by living on.

No clock is compared with another one: a lease holds while its version changes within `lease.ms` of
the observer's own time.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError
from msgspec.structs import replace

from coordinator.ownership import Board, fold
from pipeline.clock import clock_ms
from pipeline.commit import Appender, open_appender, raise_epoch
from pipeline.epoch import Epoch, FencedError
from pipeline.errors import Failure
from pipeline.sink import WRITTEN
from pipeline.store import open_table, table_uri
from schemas.records import CoordinatorEvent
from schemas.tables import COORDINATORS, from_arrow, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

log = logging.getLogger(__name__)

DECISIONS = "ownership"
_RENEWALS_PER_LEASE = 4


def lease_app_id(node_id: int) -> str:
    """The transaction whose version is when a node last said that it is alive, ms."""
    return f"coordinator-lease-{node_id}"


def consumed_app_id(node_id: int) -> str:
    """The transaction whose version is the version of `requests` up to which a node has read."""
    return f"coordinator-consumed-{node_id}"


class Ledger:
    """The `coordinators` table of a root, as one thread reads and appends to it."""

    def __init__(self, root: str) -> None:
        """Open the table; raises deltalake's TableNotFoundError."""
        self._root = root
        self._appender: Appender = open_appender(table_uri(root, COORDINATORS))
        self._board = Board()

    def read(self) -> Board:
        """The newest board. Rows are read only when there are new ones."""
        self._appender.forget()
        if self._appender.last_version(DECISIONS) > self._board.epoch:
            self._board = fold(Board(), self.events())
        return self._board

    def events(self) -> list[CoordinatorEvent]:
        """Every decision so far."""
        handle = open_table(self._root, COORDINATORS)
        query = "SELECT * FROM log ORDER BY epoch, partition"
        rows = pa.table(QueryBuilder().register("log", handle).execute(query).read_all())
        return from_arrow(CoordinatorEvent, rows)

    def decide(self, board: Board, events: Iterable[CoordinatorEvent]) -> Board | None:
        """Append events as the decision after `board`; the new board, None if one was decided
        meanwhile. The events' epochs are set here.
        """
        epoch = board.epoch + 1
        rows = [replace(event, epoch=epoch) for event in events]
        if not self._appender.append(to_arrow(COORDINATORS, rows), DECISIONS, epoch):
            return None
        self._board = fold(board, rows)
        return self._board

    def decide_until(
        self, events_on: Callable[[Board], Sequence[CoordinatorEvent]]
    ) -> tuple[Board, Sequence[CoordinatorEvent]]:
        """Decide on the newest board, again until nobody else was faster.

        No events end it. Returns the board and what was decided.
        """
        while True:
            board = self.read()
            events = events_on(board)
            if not events:
                return board, events
            decided = self.decide(board, events)
            if decided is not None:
                return decided, events

    def lease_of(self, node_id: int) -> int:
        """When a node last said that it is alive, by its own clock, ms; -1 never. As last read."""
        return self._appender.last_version(lease_app_id(node_id))

    def consumed_by(self, node_id: int) -> int:
        """The version of `requests` that a node reads next; -1 if it has not said. As last read."""
        return self._appender.last_version(consumed_app_id(node_id))

    def say_consumed(self, node_id: int, version: int) -> None:
        """Say how far a node has read `requests`."""
        self._appender.append(None, consumed_app_id(node_id), version)


def fence(root: str, epoch: Epoch) -> None:
    """Fence off the earlier starts of a node at every table that coordinators write.

    Raises FencedError if the node has started later than this epoch.
    """
    for table in WRITTEN:
        raise_epoch(table_uri(root, table), epoch)


def fence_dead(root: str, board: Board, node_ids: Iterable[int]) -> bool:
    """Fence off nodes that are dead by this board; False if one of them started again meanwhile."""
    try:
        for node_id in node_ids:
            fence(root, Epoch(node_id, board.epoch + 1))
    except FencedError:
        return False
    return True


class Observer:
    """Tells which nodes are alive, by seeing their leases change."""

    def __init__(self, me: int, lease_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._me = me
        self._lease_ms = lease_ms
        self._clock = clock
        self._seen: dict[int, tuple[tuple[int, int], float]] = {}

    def alive(self, board: Board, lease_of: Callable[[int], int]) -> set[int]:
        """The nodes that have not stopped and whose lease holds; always this one.

        A node that was not seen before has all of `lease_ms` to renew.
        """
        living = {self._me}
        for node_id, node in board.nodes.items():
            if not node.stopped and self._holds(node_id, (node.epoch, lease_of(node_id))):
                living.add(node_id)
        return living

    def _holds(self, node_id: int, sign: tuple[int, int]) -> bool:
        now = self._clock()
        seen, since = self._seen.get(node_id, (None, now))
        if sign != seen:
            since = now
        self._seen[node_id] = (sign, since)
        return (now - since) * 1000 <= self._lease_ms


class LeaseRenewal:
    """A thread that says that this node is alive, four times a lease, until it is stopped."""

    def __init__(
        self, root: str, node_id: int, lease_ms: int, clock: Callable[[], int] = clock_ms
    ) -> None:
        self._appender = open_appender(table_uri(root, COORDINATORS))
        self._app_id = lease_app_id(node_id)
        self._wait_s = lease_ms / _RENEWALS_PER_LEASE / 1000
        self._clock = clock
        self._stopping = threading.Event()
        self._renew()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Renew no more."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._wait_s):
            try:
                self._renew()
            except (DeltaError, OSError, Failure) as error:
                # Should it go on like this, others take over, and this node is fenced off.
                log.warning("the lease was not renewed: %s", error)

    def _renew(self) -> None:
        # A clock that was set back must not end the lease.
        now = max(self._clock(), self._appender.last_version(self._app_id) + 1)
        self._appender.append(None, self._app_id, now)
