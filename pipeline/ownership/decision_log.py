"""The log of decisions about ownership, in the `coordinators` table, and the nodes' leases.

A decision is an append with the decision's epoch as the version of one transaction (`txn`). So
Delta orders the decisions: one on an old cluster state is refused.

A lease is a transaction without rows. Its version is the time of the last renewal, ms, so renewals
add no rows. `pipeline.ownership.lease` says when it holds. The last epoch that a node has prepared
for (`Preparations`) is recorded in the same way.
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
from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta import (
    Appender,
    RetryBudget,
    open_files,
    read_files,
    read_rows,
    to_table,
)
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables import open_table, table_uri
from group_coordinator.schemas.records import CoordinatorEvent
from group_coordinator.schemas.tables import COORDINATORS, from_arrow, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from group_coordinator.coordinator.ownership import PartitionState

log = logging.getLogger(__name__)

DECISIONS = "ownership"


class DecisionsLost(Failure):
    """The table of decisions no longer has the start of a running node, or one of its claims."""

    def __init__(self, node_id: int) -> None:
        super().__init__(
            f"the table {COORDINATORS.name} has lost rows of node {node_id}, for example by "
            "DELETE or RESTORE: start the node again"
        )


def consumed_app_id(node_id: int) -> str:
    """Return the transaction identifier of the next version of `requests` that a node reads."""
    return f"coordinator-consumed-{node_id}"


def prepared_app_id(node_id: int) -> str:
    """Return the transaction identifier of the last epoch that a node has prepared for."""
    return f"coordinator-prepared-{node_id}"


class DecisionLog:
    """A reader and writer of the `coordinators` table of a root. Not thread-safe.

    A read costs only the commits since the last one; each data file is read once, unless the table
    was rewritten. Failed operations are retried for `offsets.commit.timeout.ms` of `config`; then
    CommitTimeoutError is raised.
    """

    def __init__(self, root: str, config: GroupCoordinatorConfig | None = None) -> None:
        """Open the table. Raises deltalake's TableNotFoundError."""
        self._root = root
        self._timeout_ms = (config or GroupCoordinatorConfig()).offsets_commit_timeout_ms
        uri = table_uri(root, COORDINATORS)
        self._appender: Appender = Appender(uri)
        # After this first request, the appender keeps this version consistent with `file_paths`.
        self._appender.last_version(DECISIONS)
        self._files = open_files(uri)
        self._cluster = ClusterState()
        # The files that were read, and the epochs of each node's starts in them.
        self._read: frozenset[str] = frozenset()
        self._starts: defaultdict[int, set[int]] = defaultdict(set)

    def read(self) -> ClusterState:
        """Return the newest cluster state."""
        return RetryBudget(self._timeout_ms).run("read decisions", self._look)

    def _look(self) -> ClusterState:
        self._appender.forget()
        if self._is_rewritten() or self._appender.last_version(DECISIONS) > self._cluster.epoch:
            self._read_on()
        return self._cluster

    def starts_of(self, node_id: int) -> list[int]:
        """Return the epochs of a node's processes in ascending order, as last read."""
        return sorted(self._starts[node_id])

    def decide(
        self, cluster: ClusterState, events: Iterable[CoordinatorEvent]
    ) -> ClusterState | None:
        """Append events as the decision after `cluster`; return the new cluster state.

        Returns None if another decision was made meanwhile. Sets the events' epochs.
        """
        epoch = cluster.epoch + 1
        rows = [replace(event, epoch=epoch) for event in events]
        budget = RetryBudget(self._timeout_ms)
        append = partial(self._appender.append, to_arrow(COORDINATORS, rows), DECISIONS, epoch)
        if not budget.run("write a decision", append):
            # A failed attempt may have committed. The retry then finds the epoch in use, as if
            # another node had decided.
            look = partial(self._is_decided, rows, epoch)
            if not (budget.has_failed and budget.run("read a decision", look)):
                return None
            self._note_starts(rows)
            return fold(cluster, rows)
        self._note_starts(rows)
        self._cluster = fold(cluster, rows)
        if not self._is_rewritten():
            self._read = frozenset(self._appender.file_paths() or ())
        return self._cluster

    def _is_decided(self, rows: Sequence[CoordinatorEvent], epoch: int) -> bool:
        table = open_table(self._root, COORDINATORS)
        there = read_rows(table, where=pc.field("epoch") == epoch)
        return list(from_arrow(CoordinatorEvent, there)) == list(rows)

    def decide_until(
        self, events_on: Callable[[ClusterState], Sequence[CoordinatorEvent]]
    ) -> tuple[ClusterState, Sequence[CoordinatorEvent]]:
        """Decide on the newest cluster state, and retry if another decision was made first.

        `events_on` returns the events for a cluster state, or an empty list to decide nothing.
        Returns the resulting cluster state and the events.
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
        """Return the time of a node's last lease renewal, as last read; -1 if there is none.

        The time is in ms, by the node's clock.
        """
        return self._appender.last_version(lease_app_id(node_id))

    def consumed_by(self, node_id: int) -> int:
        """Return the next version of `requests` that a node reads, as last read; -1 if unknown."""
        return self._appender.last_version(consumed_app_id(node_id))

    def record_consumed(self, node_id: int, version: int) -> None:
        """Record the next version of `requests` that a node reads."""
        self._say(consumed_app_id(node_id), version)

    def prepared_by(self, node_id: int) -> int:
        """Return the last epoch that a node has prepared for, as last read; -1 if none.

        The node has read the data of all partitions that decisions up to this epoch move to it.
        """
        return self._appender.last_version(prepared_app_id(node_id))

    def record_prepared(self, node_id: int, epoch: int) -> None:
        """Record the last epoch that a node has prepared for (`prepared_by`)."""
        self._say(prepared_app_id(node_id), epoch)

    def _say(self, app_id: str, version: int) -> None:
        append = partial(self._appender.append, None, app_id, version)
        RetryBudget(self._timeout_ms).run(f"record {app_id} {version}", append)

    def _is_rewritten(self) -> bool:
        """Return whether the table no longer has a file that was read."""
        paths = self._appender.file_paths()
        return paths is not None and not self._read.issubset(paths)

    def _read_on(self) -> None:
        """Read the files that were not read before, or all files after a rewrite.

        The cluster state is the fold of all rows of the table, also after a RESTORE; otherwise
        nodes would never agree. If only delta-rs can read the table, all rows are read, and a
        restore is not noticed.
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
        # A restore removes rows of later decisions, but their epochs stay in use: a decision with
        # such an epoch would be refused forever.
        taken = self._appender.last_version(DECISIONS)
        events = from_arrow(CoordinatorEvent, rows)
        cluster = fold(before, events)
        # Nothing fails after this, so the cluster state includes all files in `_read`.
        self._read = frozenset(paths or ())
        self._note_starts(events)
        self._cluster = replace(cluster, epoch=max(cluster.epoch, taken))

    def _note_starts(self, events: Iterable[CoordinatorEvent]) -> None:
        for event in events:
            if event.event == STARTED:
                self._starts[event.node_id].add(event.epoch)


# The longest time for which an owner waits for the next one to prepare, s.
MOST_S = 20.0


class Preparations:
    """The partitions that a node keeps until their next owner has prepared.

    The target of a move reads ahead the data that its claim needs, and then records the epoch of
    the decisions that it has prepared for. Until then the owner keeps the partition. This only
    shortens the time for which groups wait: a node may claim partitions without it.

    A node records this before it declares itself ready; before that, no owner waits for it. An
    owner waits at most `MOST_S`, because the target may be dead or hang.
    """

    def __init__(self, me: int) -> None:
        self._me = me
        # When each delayed move was first seen, s, by partition and epoch.
        self._since: dict[tuple[int, int], float] = {}

    def held(self, cluster: ClusterState, prepared_by: Callable[[int], int]) -> set[int]:
        """Return the partitions with a next owner that still prepares.

        `prepared_by` returns the last epoch that a node has prepared for.
        """
        now = monotonic()
        self._since = {
            (number, state.meant_epoch): self._since.get((number, state.meant_epoch), now)
            for number, state in cluster.kept_by(self._me).items()
            if _is_awaited(cluster, state, prepared_by)
        }
        return {number for (number, _), since in self._since.items() if now - since < MOST_S}


def _is_awaited(
    cluster: ClusterState, state: PartitionState, prepared_by: Callable[[int], int]
) -> bool:
    node = None if state.to_node is None else cluster.nodes.get(state.to_node)
    if node is None or node.node_id == state.owner:
        return False
    # Epochs that an earlier process of the node recorded are ignored.
    return node.epoch <= prepared_by(node.node_id) < state.meant_epoch
