"""A coordinator node: the partitions that it owns, and the query that decides for them.

A node reads the cluster state several times a second and carries out the plan of
`coordinator.ownership.decide`. Its partitions change while its query runs: events in the stream's
bootstrap unload the groups of released partitions and load those of claimed ones, and then select
the requests of the new partitions (`pipeline.stream.offset`).

Only requests for a moving partition wait for the change. They are not answered
COORDINATOR_LOAD_IN_PROGRESS: a request here is a row that can wait, and the error would cost its
client a round trip and a backoff.

A partition moves in these steps:

1. The next owner reads the data that its claim needs (`pipeline.ownership.decision_log`), which
   takes seconds.
2. A decision marks the partition as unloading.
3. The former owner's query unloads the partition's groups.
4. A decision releases the partition.

The query begins when the node starts, even without partitions, so that a partition claimed later
need not wait for it. A controlled shutdown first hands over all partitions
(`pipeline.node.coordinating`).
"""

from __future__ import annotations

import logging
import os
import socket
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from group_coordinator.coordinator.group.coordinator import Node
from group_coordinator.coordinator.ownership import (
    CLAIMED,
    MOVE,
    NO_EPOCH,
    READY,
    RELEASED,
    STARTED,
    STOPPED,
    STOPPING,
    UNLOADING,
    ClusterState,
    Plan,
    decide,
    named,
    takers,
)
from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta import Epoch, FencedError, RetryBudget, local_folder
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node.query import NodeQuery
from group_coordinator.pipeline.ownership.decision_log import (
    DecisionLog,
    DecisionsLost,
    Preparations,
)
from group_coordinator.pipeline.ownership.fencing import check_not_running, fence, fence_dead
from group_coordinator.pipeline.ownership.lease import (
    LeaseObserver,
    LeaseRenewal,
    ProgressWatch,
    longest_gap_s,
)
from group_coordinator.pipeline.tables import ensure_tables, open_table
from group_coordinator.schemas.records import CoordinatorEvent
from group_coordinator.schemas.tables import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from group_coordinator.pipeline.node.stream_engine import RunningQuery, StreamEngine
    from group_coordinator.pipeline.ownership.fencing import ObservedLease
    from group_coordinator.pipeline.settings import Settings

log = logging.getLogger(__name__)

# How often a node reads the cluster state, s, on a local disk and in an object store, where each
# read is a request, and each trim of the log of `requests` is several.
_POLL_INTERVAL_S, _STORE_POLL_INTERVAL_S = 0.25, 1.0
# The same while a partition moves, because its groups wait for the other node's decisions.
_MOVING_POLL_INTERVAL_S, _STORE_MOVING_POLL_INTERVAL_S = 0.02, 0.1
# How often `tick` is called while no partition moves, s.
_TICK_S = 0.1
_TRIM_INTERVAL_S, _STORE_TRIM_INTERVAL_S = 5.0, 60.0


class QueryHung(Failure):
    """The query neither ends nor completes batches; the message says for how long."""


class CoordinatorNode:
    """A running node. `start` creates one; the caller calls `tick` until the node stops."""

    def __init__(
        self, engine: StreamEngine, root: str, settings: Settings, seen: ObservedLease | None = None
    ) -> None:
        self._root = root
        self._config = settings.group
        self._num_partitions = self._config.offsets_topic_num_partitions
        ours = settings.coordinator
        self.node = Node(ours.node_id, ours.advertised_host, ours.advertised_port)
        self._decisions = DecisionLog(root, self._config)
        self._observer = LeaseObserver(self.node.node_id, ours.lease_ms)
        is_store = local_folder(root) is None
        self._poll_interval_s = _STORE_POLL_INTERVAL_S if is_store else _POLL_INTERVAL_S
        self._moving_poll_interval_s = (
            _STORE_MOVING_POLL_INTERVAL_S if is_store else _MOVING_POLL_INTERVAL_S
        )
        self._trim_interval_s = _STORE_TRIM_INTERVAL_S if is_store else _TRIM_INTERVAL_S
        self._poll_at = 0.0
        self._trim_at = 0.0
        self._recorded_consumed: int | None = None
        self._preparations = Preparations(self.node.node_id)
        self._recorded_prepared = NO_EPOCH
        self._is_moving = False
        # The other nodes that can take partitions.
        self._others: frozenset[int] = frozenset()
        self._cluster, _ = self._decisions.decide_until(partial(self._started, seen))
        self.epoch = Epoch(self.node.node_id, self._cluster.epoch)
        fence(root, self.epoch)
        starts = self._decisions.starts_of(self.node.node_id)
        self._query = NodeQuery(engine, root, settings, self.node, self.epoch, starts)
        self._progress = ProgressWatch(
            (ours.progress_timeout_ms + ours.longest_trigger_ms) / 1000,
            longest_gap_s(ours.lease_ms),
        )
        self.lease = LeaseRenewal(
            root, self.node.node_id, ours.lease_ms, is_progressing=self._progress.is_progressing
        )

    # --- state ----------------------------------------------------------------------------------

    @property
    def running_query(self) -> RunningQuery | None:
        """The query; None before it has begun."""
        return self._query.running

    def is_ready(self) -> bool:
        """Whether the query has begun and has loaded the groups of all its partitions."""
        return self._query.is_ready()

    def await_ready(self, timeout_s: float = 120.0) -> None:
        """Wait for `is_ready`. Raises QueryFailed, also if no batch ends within the timeout."""
        assert self.running_query is not None, "the query has not begun: call `tick` first"
        self.running_query.await_ready(timeout_s)

    def does_upkeep(self) -> bool:
        """Whether this node runs compaction and retention, as the owner of partition 0."""
        first = self._cluster.partitions.get(0)
        return first is not None and first.owner == self.node.node_id

    # --- running --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise Failure if the query has ended or hangs, FencedError if the node is fenced.

        Raises DecisionsLost if the table of decisions lacks this node, or a claim of a partition
        that it serves.
        """
        if self.running_query is not None:
            self.running_query.check()
        node = self._cluster.nodes.get(self.node.node_id)
        if node is None:
            raise DecisionsLost(self.node.node_id)
        if node.epoch > self.epoch.number:
            raise FencedError("any table", self.epoch, node.epoch)
        for number in self._query.served:
            state = self._cluster.partitions.get(number)
            if state is None:
                raise DecisionsLost(self.node.node_id)
            if state.owner != self.node.node_id:
                # The node was considered dead and is fenced, but no write of it has failed yet.
                raise FencedError(f"partition {number}", self.epoch, state.epoch)
        if self._progress.is_hung():
            # The error ends this process, so that a supervisor restarts it if no other node takes
            # over.
            raise QueryHung(
                f"the query has completed no batch for {self._progress.stuck_s():.0f} s: "
                "start the coordinator again"
            )

    def tick(self) -> None:
        """Read the cluster state if that is due, and carry out the node's plan."""
        if monotonic() >= self._poll_at:
            self.poll()

    def poll(self) -> None:
        """Read the cluster state now, and carry out the node's plan."""
        now = monotonic()
        self._cluster = self._decisions.read()
        self.check()
        alive = self._observer.alive(self._cluster, self._decisions.lease_of)
        self._others = takers(self._cluster, alive) - {self.node.node_id}
        held = self._preparations.held(self._cluster, self._decisions.prepared_by)
        me = self.node.node_id
        plan = decide(self._cluster, me, alive, self._num_partitions, held)
        is_idle = not self._query.is_changing() and not (plan.unload or plan.claim)
        if self.running_query is not None and is_idle and not self._cluster.nodes[me].stopping:
            self._prepare_for_claims()
        self._carry_out(plan)
        coming = self._cluster.meant_for(me).values()
        self._is_moving = bool(held) or any(each.is_let_go for each in coming)
        if now >= self._trim_at:
            self.trim(alive)
            self._trim_at = now + self._trim_interval_s
        interval_s = self._moving_poll_interval_s if self._is_moving else self._poll_interval_s
        # The next step of a change is due as soon as the query has made progress.
        self._poll_at = monotonic() + (0.0 if self._query.is_changing() else interval_s)

    def pause_s(self) -> float:
        """Return how long to wait before the next `tick`, s."""
        is_soon = self._query.is_changing() or self._is_moving
        return self._moving_poll_interval_s if is_soon else _TICK_S

    def trim(self, alive: Collection[int] = ()) -> int:
        """Delete the log of `requests` that this node, `alive` nodes and owners have consumed.

        Only the node that does the upkeep deletes. Returns the number of deleted files.
        """
        mine = self._record_consumed()
        if mine is None or self.running_query is None or not self.does_upkeep():
            return 0
        owners = {state.owner for state in self._cluster.partitions.values()}
        others = {n for n in {*alive, *owners} if n is not None} - {self.node.node_id}
        return self.running_query.trim(min([mine, *map(self._decisions.consumed_by, others)]))

    def _record_consumed(self) -> int | None:
        if self.running_query is not None:
            version = self._query.consumed()
        elif self._cluster.owned_by(self.node.node_id):
            # The query may resume from a streaming checkpoint that lags far. If other nodes trimmed
            # the log, it could not read its next batch.
            version = None
        else:
            # A node without partitions needs no earlier requests: a claim loads those that wait.
            version = open_table(self._root, REQUESTS).version()
        if version is not None and version != self._recorded_consumed:
            self._decisions.record_consumed(self.node.node_id, version)
            self._recorded_consumed = version
        return version

    def hand_over(self) -> None:
        """Make the next ticks move all partitions to other nodes and claim no more.

        Does nothing if another process has started as this node; the next tick raises FencedError.
        """
        self._cluster, _ = self._decisions.decide_until(
            lambda cluster: self._if_latest(cluster, STOPPING)
        )
        self._poll_at = 0.0

    def left_to_hand_over(self) -> int:
        """Return how many partitions must still move, 0 if no other node can take them."""
        return len(self._cluster.owned_by(self.node.node_id)) if self._others else 0

    def stop(self) -> None:
        """Stop between two batches, and record it: other nodes need not wait for the lease."""
        self._query.stop()
        # Only now, because a node with a query that does not stop must lose its lease.
        self._progress.watch(None)
        self.lease.stop()
        self._decisions.decide_until(lambda cluster: self._if_latest(cluster, STOPPED))

    def abandon(self) -> None:
        """End the query and the lease's renewal at once, without recording a stop."""
        self.lease.stop()
        self._query.abandon()

    def _if_latest(self, cluster: ClusterState, what: str) -> list[CoordinatorEvent]:
        """Return an event of this node, or an empty list if a newer process of the node exists."""
        node = cluster.nodes.get(self.node.node_id)
        is_latest = node is not None and node.epoch == self.epoch.number
        return [self._event(what)] if is_latest else []

    # --- decisions ------------------------------------------------------------------------------

    def _started(self, seen: ObservedLease | None, cluster: ClusterState) -> list[CoordinatorEvent]:
        if seen is not None:
            me = self.node.node_id
            check_not_running(seen, cluster.nodes.get(me), self._decisions.lease_of(me))
        process = f"process {os.getpid()} of {socket.gethostname()}"
        return [replace(self._event(STARTED), reason=process)]

    def _event(self, what: str, partition: int | None = None) -> CoordinatorEvent:
        node = self.node
        return CoordinatorEvent(clock_ms(), -1, what, node.node_id, partition, node.host, node.port)

    def _events(self, what: str, partitions: Iterable[int]) -> list[CoordinatorEvent]:
        return [self._event(what, partition) for partition in partitions]

    def _moves(self, plan: Plan) -> list[CoordinatorEvent]:
        me = self.node.node_id
        reason = f"node {me} stops" if self._cluster.nodes[me].stopping else "even shares"
        return [
            CoordinatorEvent(clock_ms(), -1, MOVE, me, partition, to_node=to, reason=reason)
            for partition, to in plan.moves
        ]

    def _carry_out(self, plan: Plan) -> None:
        if self._query.is_changing():
            if self._query.continue_change(self._cluster):
                self._release()
        elif (plan.unload or plan.claim) and self.running_query is not None and not self.is_ready():
            # A change begins only after the previous one.
            return
        elif self.is_ready() and not self._cluster.nodes[self.node.node_id].ready:
            self._decisions.decide(self._cluster, [self._event(READY)])
        elif plan.unload:
            self._unload(plan.unload)
        elif plan.claim:
            self._claim(plan)
        elif plan.moves:
            self._decisions.decide(self._cluster, self._moves(plan))
        elif self.running_query is None:
            self._update_query()

    def _prepare_for_claims(self) -> None:
        """Read the data for the claims of partitions that move here, and record that it is read."""
        self._query.read_ahead(self._cluster)
        mine = self._cluster.meant_for(self.node.node_id)
        newest = max((state.meant_epoch for state in mine.values()), default=self.epoch.number)
        if self._recorded_prepared < newest:
            self._recorded_prepared = self._cluster.epoch
            self._decisions.record_prepared(self.node.node_id, self._recorded_prepared)

    def _unload(self, partitions: tuple[int, ...]) -> None:
        """Unload partitions. `_release` releases them once the query has unloaded their groups."""
        fresh = [p for p in partitions if not self._cluster.partitions[p].unloading]
        if fresh:
            cluster = self._decisions.decide(self._cluster, self._events(UNLOADING, fresh))
            if cluster is None:
                return
            self._cluster = cluster
        log.info("releasing %d partitions: %s", len(partitions), named(partitions))
        self._update_query(partitions)

    def _release(self) -> None:
        self._cluster, _ = self._decisions.decide_until(
            lambda cluster: self._events(
                RELEASED, (p for p, s in cluster.owned_by(self.node.node_id).items() if s.unloading)
            )
        )

    def _claim(self, plan: Plan) -> None:
        """Fence the dead owners of partitions, claim the partitions, and load them."""
        for node_id in plan.fence:
            if self._cluster.nodes[node_id].stopped:
                log.info("node %d has stopped: taking over its partitions", node_id)
            else:
                log.warning("the lease of node %d has ended: taking over its partitions", node_id)
        fenced = partial(fence_dead, self._root, self._cluster, plan.fence)
        if not RetryBudget(self._config.offsets_commit_timeout_ms).run("fence", fenced):
            # The cluster state has changed, and must be read first.
            return
        claimed = self._decisions.decide(self._cluster, self._events(CLAIMED, plan.claim))
        self._cluster = claimed or self._decisions.read()
        if claimed is None:
            # Another node's decision came first, so the plan may be outdated.
            return
        log.info("claimed %d partitions: %s", len(plan.claim), named(plan.claim))
        self._update_query()

    def _update_query(self, unload: Collection[int] = ()) -> None:
        if self.running_query is None:
            self._progress.watch(self._query.begin(self._cluster, unload).progress)
        else:
            self._query.change(self._cluster, unload)


def start(
    engine: StreamEngine, root: str, settings: Settings, seen: ObservedLease | None = None
) -> CoordinatorNode:
    """Start a node at `root`, after creating missing tables.

    Every earlier process of the node is fenced: its writes fail, and it stops. The query begins in
    one of the first ticks. `seen` is the node's lease some seconds ago; raises NodeAlreadyRunning
    if another process has renewed it since. Raises SchemaMismatch, LaterRelease, ConfigError, and
    FencedError if another process has started as this node meanwhile.
    """
    ensure_tables(root)
    coordinator = CoordinatorNode(engine, root, settings, seen)
    coordinator.tick()
    return coordinator
