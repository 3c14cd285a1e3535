"""A snapshot of a root's tables in memory, which is refreshed in the background.

A page over 100,000 groups must not read a million records for each request. So the data of the list
and of a group's head is computed once, into DuckDB tables. Data of only one group's page (events
and commits) is read from the root's tables on request, at the snapshot's versions.
"""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline import background
from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.monitor.catalog import Catalog, Result

if TYPE_CHECKING:
    from collections.abc import Callable


log = logging.getLogger(__name__)

# A snapshot is refreshed when it is `REFRESH_S` old, s, and `_REST_FACTOR` times as old as its
# reading took. So a large root uses at most a tenth of the machine.
REFRESH_S = 5.0
_REST_FACTOR = 10
# The longest wait of a request, s, for the first snapshot, or for the refresh of one that is
# `_TOO_OLD` refresh intervals old, as after a time without requests.
WAIT_S = 30.0
_TOO_OLD = 6

_TOPICS = "SELECT DISTINCT topic FROM verdicts"


class Unreadable(Failure):
    """The tables cannot be read now; the message has the reason."""


class RootSnapshot:
    """A snapshot of the root's tables and views, with the table `held_topics`.

    The overview, the committed offsets, the groups' metadata and the verdicts are in memory.
    Thread-safe: queries run one after the other, each on all cores. Raises NoRoot and QueryError,
    and DeltaError or OSError for tables that cannot be read.
    """

    def __init__(self, root: str, number: int) -> None:
        began = monotonic()
        self.number = number
        self.at_ms = clock_ms()
        self._lock = threading.Lock()
        self._catalog = Catalog(root)
        for view in ("committed_offsets", "stored_groups", "verdicts"):
            self._catalog.materialize(view)
        self._catalog.materialize("group_overview", "FROM group_overview ORDER BY group_id")
        self._catalog.materialize("held_topics", _TOPICS)
        self.made = monotonic()
        self.took_s = self.made - began

    @property
    def at(self) -> datetime:
        """The start time of the snapshot, UTC, without a zone like all times of the tables."""
        return datetime.fromtimestamp(self.at_ms / 1000, UTC).replace(tzinfo=None)

    @property
    def age_s(self) -> float:
        """The age in seconds since the snapshot was complete, by a monotonic clock."""
        return monotonic() - self.made

    def query(self, sql: str, *parameters: Any) -> Result:
        """Run one query. Raises QueryError, for example if a file was deleted meanwhile."""
        with self._lock:
            return self._catalog.query(sql, list(parameters))

    def rows(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        """Run one query and return each row as column name -> value. Raises QueryError."""
        return self.query(sql, *parameters).as_dicts()


class SnapshotCache:
    """The newest snapshot of a root. Only requests cause a refresh."""

    def __init__(
        self,
        root: str,
        refresh_s: float = REFRESH_S,
        make: Callable[[str, int], RootSnapshot] = RootSnapshot,
    ) -> None:
        self.root = root
        self._refresh_s = refresh_s
        self._make = make
        self._held: RootSnapshot | None = None
        self._changed = threading.Condition()
        self._reading = False
        self._count = 0
        self.problem: str | None = None

    def current(self) -> RootSnapshot:
        """Return the snapshot; start a refresh in the background if it is old.

        Waits up to `WAIT_S` for the first snapshot, and for the refresh of a very old one. If the
        tables cannot be read, returns the previous snapshot and sets `problem` to the reason.
        Raises Unreadable if there is no snapshot.
        """
        with self._changed:
            held = self._held
            every_s = max(self._refresh_s, _REST_FACTOR * held.took_s if held else 0.0)
            if held is None or held.age_s >= every_s:
                self._begin()
            if held is None or held.age_s >= _TOO_OLD * every_s:
                self._changed.wait_for(lambda: not self._reading, WAIT_S)
            if self._held is None:
                raise Unreadable(self.problem or f"the tables of {self.root} are still being read")
            return self._held

    def refreshed(self) -> RootSnapshot:
        """Return a snapshot that is started after this call. Raises Unreadable."""
        with self._changed:
            self._changed.wait_for(lambda: not self._reading, WAIT_S)
            self._begin()
            self._changed.wait_for(lambda: not self._reading, WAIT_S)
            if self._reading or self.problem or self._held is None:
                raise Unreadable(self.problem or f"the tables of {self.root} are still being read")
            return self._held

    def _begin(self) -> None:
        if not self._reading:
            self._reading = background.run("snapshot", self._read)
            if not self._reading:
                self.problem = f"no thread could be started to read the tables of {self.root}"

    def _read(self) -> None:
        made, problem = None, None
        try:
            made = self._make(self.root, self._count + 1)
        except STORE_FAILS as error:
            problem = first_line(error)
            if problem != self.problem:
                log.warning("%s cannot be read: %s", self.root, problem)
        finally:
            with self._changed:
                if made is not None:
                    self._held, self._count = made, made.number
                self.problem = problem
                self._reading = False
                self._changed.notify_all()
