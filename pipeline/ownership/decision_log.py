"""The cluster state of a root: reading it, deciding on it, and the leases of its nodes.

Everything is in the `coordinators` table. A decision is an append under one transaction identifier
whose version is its epoch, so Delta's own commits put decisions in a row: a decision that was made
on an old cluster state is refused. A lease is a transaction too, without rows: its version is the
time at which the node last said that it is alive, ms. So a node costs the table no rows by living
on.

No clock is compared with another one: a lease holds while its version changes within `lease.ms` of
the observer's own time.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from deltalake import QueryBuilder
from msgspec.structs import replace

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.ownership import STARTED, ClusterState, fold, lease_app_id
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.data_files import to_table
from group_coordinator.pipeline.delta.parquet_file import read_files, read_rows
from group_coordinator.pipeline.delta.patience import Patience
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.store import open_table, table_uri
from group_coordinator.schemas.records import CoordinatorEvent
from group_coordinator.schemas.tables import COORDINATORS, from_arrow, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


log = logging.getLogger(__name__)

DECISIONS = "ownership"
_RENEWALS_PER_LEASE = 4


class DecisionsLost(Failure):
    """The table of decisions no longer has the start of a node that runs, or one of its claims."""

    def __init__(self, node_id: int) -> None:
        super().__init__(
            f"the table {COORDINATORS.name} has lost rows of node {node_id}, as by DELETE or "
            "RESTORE: start the node again"
        )


def consumed_app_id(node_id: int) -> str:
    """The transaction whose version is the version of `requests` up to which a node has read."""
    return f"coordinator-consumed-{node_id}"


def prepared_app_id(node_id: int) -> str:
    """The transaction whose version is the epoch of the decisions that a node has prepared for."""
    return f"coordinator-prepared-{node_id}"


class DecisionLog:
    """The `coordinators` table of a root, as one thread reads and appends to it.

    A look costs what others have committed since the last one: a data file is read once, unless
    the table was rewritten meanwhile, as by upkeep. What fails is tried again as `config` says
    (offsets.commit.timeout.ms), and then CommitTimeoutError is raised.
    """

    def __init__(self, root: str, config: GroupCoordinatorConfig | None = None) -> None:
        """Open the table; raises deltalake's TableNotFoundError."""
        self._root = root
        self._timeout_ms = (config or GroupCoordinatorConfig()).offsets_commit_timeout_ms
        uri = table_uri(root, COORDINATORS)
        self._appender: Appender = Appender(uri)
        # Asked for once, its versions are those of the files that `file_paths` tells.
        self._appender.last_version(DECISIONS)
        self._files = open_files(uri)
        self._cluster = ClusterState()
        # The files whose decisions are known, and the epochs of each node's starts in them.
        self._read: frozenset[str] = frozenset()
        self._starts: defaultdict[int, set[int]] = defaultdict(set)

    def read(self) -> ClusterState:
        """The newest cluster state. Rows are read only when there are new ones."""
        return Patience(self._timeout_ms).until_done("read decisions", self._look)

    def _look(self) -> ClusterState:
        self._appender.forget()
        if self._is_rewritten() or self._appender.last_version(DECISIONS) > self._cluster.epoch:
            self._read_on()
        return self._cluster

    def starts_of(self, node_id: int) -> list[int]:
        """The epochs of a node's starts, the last one last. As last read."""
        return sorted(self._starts[node_id])

    def decide(
        self, cluster: ClusterState, events: Iterable[CoordinatorEvent]
    ) -> ClusterState | None:
        """Append events as the decision after `cluster`; return the new cluster state.

        None if another decision was made meanwhile. The events' epochs are set here.
        """
        epoch = cluster.epoch + 1
        rows = [replace(event, epoch=epoch) for event in events]
        patience = Patience(self._timeout_ms)
        append = partial(self._appender.append, to_arrow(COORDINATORS, rows), DECISIONS, epoch)
        if not patience.until_done("write a decision", append):
            # What an attempt that failed has written, the next one takes for somebody else's.
            look = partial(self._is_decided, rows, epoch)
            if not (patience.has_failed and patience.until_done("read a decision", look)):
                return None
            self._note_starts(rows)
            return fold(cluster, rows)
        self._note_starts(rows)
        self._cluster = fold(cluster, rows)
        if not self._is_rewritten():
            self._read = frozenset(self._appender.file_paths() or ())
        return self._cluster

    def _is_decided(self, rows: Sequence[CoordinatorEvent], epoch: int) -> bool:
        """Whether these rows are the decision of the epoch."""
        table = open_table(self._root, COORDINATORS)
        there = read_rows(table, where=pc.field("epoch") == epoch)
        return list(from_arrow(CoordinatorEvent, there)) == list(rows)

    def decide_until(
        self, events_on: Callable[[ClusterState], Sequence[CoordinatorEvent]]
    ) -> tuple[ClusterState, Sequence[CoordinatorEvent]]:
        """Decide on the newest cluster state, again until nobody else was faster.

        No events end it. Returns the cluster state and what was decided.
        """
        while True:
            cluster = self.read()
            events = events_on(cluster)
            if not events:
                return cluster, events
            decided = self.decide(cluster, events)
            if decided is not None:
                return decided, events

    def lease_of(self, node_id: int) -> int:
        """When a node last said that it is alive, ms by its own clock, as last read; -1: never."""
        return self._appender.last_version(lease_app_id(node_id))

    def consumed_by(self, node_id: int) -> int:
        """The version of `requests` that a node reads next, as last read; -1 if it has not said."""
        return self._appender.last_version(consumed_app_id(node_id))

    def say_consumed(self, node_id: int, version: int) -> None:
        """Say how far a node has read `requests`."""
        self._say(consumed_app_id(node_id), version)

    def prepared_by(self, node_id: int) -> int:
        """The epoch up to which a node has prepared for what is meant for it; -1 if it never said.

        As last read.
        """
        return self._appender.last_version(prepared_app_id(node_id))

    def say_prepared(self, node_id: int, epoch: int) -> None:
        """Say that a node has prepared for what was meant for it by the decision of an epoch."""
        self._say(prepared_app_id(node_id), epoch)

    def _say(self, app_id: str, version: int) -> None:
        append = partial(self._appender.append, None, app_id, version)
        Patience(self._timeout_ms).until_done(f"say {app_id} {version}", append)

    def _is_rewritten(self) -> bool:
        """Whether a file whose decisions are known is no longer the table's."""
        paths = self._appender.file_paths()
        return paths is not None and not self._read.issubset(paths)

    def _read_on(self) -> None:
        """Read the files that were not read before, or all after a rewrite.

        So the cluster state is what all rows of the table say, also where an operator has restored
        an earlier version of the table: nodes that have read other rows would never agree.
        """
        before, known = self._cluster, self._read
        if self._is_rewritten():
            before, known = ClusterState(), frozenset()
        paths = self._appender.file_paths()
        if paths is None:
            handle = open_table(self._root, COORDINATORS)
            rows = to_table(QueryBuilder().register("log", handle).execute("SELECT * FROM log"))
        else:
            newer = [path for path in paths if path not in known]
            rows = read_files(self._files, newer, COORDINATORS.schema)
        # A restore leaves no row of the decisions that it takes back, but their epochs stay taken:
        # a decision with one of them would be refused for ever.
        taken = self._appender.last_version(DECISIONS)
        events = from_arrow(CoordinatorEvent, rows)
        cluster = fold(before, events)
        # From here on nothing fails: files that count as read are in the cluster state.
        self._read = frozenset(paths or ())
        self._note_starts(events)
        self._cluster = replace(cluster, epoch=max(cluster.epoch, taken))

    def _note_starts(self, events: Iterable[CoordinatorEvent]) -> None:
        for event in events:
            if event.event == STARTED:
                self._starts[event.node_id].add(event.epoch)
