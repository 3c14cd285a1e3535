"""A coordinator node: the partitions it owns, and the query that decides for them.

A node looks at the cluster state several times a second and does what
`coordinator.ownership.decide` says. Its partitions change while its query runs: control events in
the stream's bootstrap unload what the node gives up and load what it has claimed, and an event
beside them says whose requests the query reads from then on (`pipeline.stream.change`). Requests of
the node's other groups do not wait for that; requests for a partition under way do. No request is
answered COORDINATOR_LOAD_IN_PROGRESS: a request here is a row that can wait, and the error would
cost its sender a round trip and a back-off.

Before a partition is given up, the node that it is meant for reads ahead what its claim will need
(`pipeline.ownership.prepared`): all that is kept, which takes seconds. Then the decision says that
the partition is unloading, the query is changed, and the decision says that it is released.

A query is begun when the node starts, with the partitions that it has by then, or none; what a node
is given later waits for no start of a query. A node that is told to end gives away all that it has
first (`pipeline.node.shutdown`).
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
from group_coordinator.pipeline.delta.epoch import Epoch, FencedError
from group_coordinator.pipeline.delta.patience import Patience
from group_coordinator.pipeline.delta.table import local_folder
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node.query import NodeQuery
from group_coordinator.pipeline.ownership.decision_log import DecisionLog, DecisionsLost
from group_coordinator.pipeline.ownership.fencing import fence, fence_dead
from group_coordinator.pipeline.ownership.lease import (
    LeaseRenewal,
    Observer,
    ProgressWatch,
    longest_gap_s,
)
from group_coordinator.pipeline.ownership.prepared import Preparations
from group_coordinator.pipeline.ownership.same_node import check_alone
from group_coordinator.pipeline.tables.store import ensure_tables, open_table
from group_coordinator.schemas.records import CoordinatorEvent
from group_coordinator.schemas.tables import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from group_coordinator.pipeline.node.engine import RunningQuery, StreamEngine
    from group_coordinator.pipeline.ownership.same_node import SeenLease
    from group_coordinator.pipeline.settings import Settings

log = logging.getLogger(__name__)

# How often a node looks at the cluster state, and trims the log of `requests`: on a local disk, and
# in an object store, where each look is a request and each trim several.
_LOOK_INTERVAL_S, _STORE_LOOK_INTERVAL_S = 0.25, 1.0
# The same while a partition is on its way: its groups wait for what the other node decides.
_SOON_S, _STORE_SOON_S = 0.02, 0.1
# How often `tick` is to be called otherwise, s.
_TICK_S = 0.1
_TRIM_INTERVAL_S, _STORE_TRIM_INTERVAL_S = 5.0, 60.0


class QueryHangs(Failure):
    """The query neither ends nor gets on; the message says for how long."""


class CoordinatorNode:
    """A running node. `start` makes one; `tick` is to be called again and again."""

    def __init__(
        self, engine: StreamEngine, root: str, settings: Settings, seen: SeenLease | None = None
    ) -> None:
        self._root = root
        self._config = settings.group
        self._num_partitions = self._config.offsets_topic_num_partitions
        ours = settings.coordinator
        self.node = Node(ours.node_id, ours.advertised_host, ours.advertised_port)
        self._decisions = DecisionLog(root, self._config)
        self._observer = Observer(self.node.node_id, ours.lease_ms)
        is_store = local_folder(root) is None
        self._look_interval_s = _STORE_LOOK_INTERVAL_S if is_store else _LOOK_INTERVAL_S
        self._soon_s = _STORE_SOON_S if is_store else _SOON_S
        self._trim_interval_s = _STORE_TRIM_INTERVAL_S if is_store else _TRIM_INTERVAL_S
        self._look_at = 0.0
        self._trim_at = 0.0
        self._said_consumed: int | None = None
        self._preparations = Preparations(self.node.node_id)
        self._said_prepared = NO_EPOCH
        self._is_awaiting = False
        # Who else can be given partitions.
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
            root, self.node.node_id, ours.lease_ms, gets_on=self._progress.gets_on
        )

    # --- what others ask ------------------------------------------------------------------------

    @property
    def serving(self) -> RunningQuery | None:
        """The query, once it has begun."""
        return self._query.running

    def is_ready(self) -> bool:
        """Whether the query has begun, and has every group that shall be there."""
        return self._query.is_ready()

    def await_ready(self, timeout_s: float = 120.0) -> None:
        """Return once `is_ready`; raises QueryFailed, also if no batch comes in time."""
        assert self.serving is not None, "this node has no partition yet"
        self.serving.await_ready(timeout_s)

    def does_upkeep(self) -> bool:
        """Whether this node does the tables' upkeep, as the owner of partition 0 does."""
        first = self._cluster.partitions.get(0)
        return first is not None and first.owner == self.node.node_id

    # --- running --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise Failure if the query has ended or hangs, FencedError if others ended it.

        Raises DecisionsLost if the table of decisions no longer says that this node has started.
        """
        if self.serving is not None:
            self.serving.check()
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
                # Found here if not by a write: this node was taken for dead, and is fenced.
                raise FencedError(f"partition {number}", self.epoch, state.epoch)
        if self._progress.hangs():
            # Found here if nobody takes over: whoever keeps this process running starts it anew.
            raise QueryHangs(
                f"no batch of the query has ended for {self._progress.stuck_s():.0f} s"
            )

    def tick(self) -> None:
        """Look at the cluster state if it is time, and carry out what there is to do."""
        if monotonic() >= self._look_at:
            self.look()

    def look(self) -> None:
        """Look at the cluster state, and carry out what there is to do."""
        now = monotonic()
        self._cluster = self._decisions.read()
        self.check()
        alive = self._observer.alive(self._cluster, self._decisions.lease_of)
        self._others = takers(self._cluster, alive) - {self.node.node_id}
        held = self._preparations.held(self._cluster, self._decisions.prepared_by)
        me = self.node.node_id
        plan = decide(self._cluster, me, alive, self._num_partitions, held)
        is_idle = not self._query.is_changing() and not (plan.unload or plan.claim)
        if self.serving is not None and is_idle and not self._cluster.nodes[me].stopping:
            self._prepare_for_claims()
        self._carry_out(plan)
        coming = self._cluster.meant_for(me).values()
        self._is_awaiting = bool(held) or any(each.is_let_go for each in coming)
        if now >= self._trim_at:
            self.trim(alive)
            self._trim_at = now + self._trim_interval_s
        self._look_at = monotonic() + self._until_look_s()

    def pause_s(self) -> float:
        """How long to wait before the next `tick`, s."""
        is_soon = self._query.is_changing() or self._is_awaiting
        return self._soon_s if is_soon else _TICK_S

    def _until_look_s(self) -> float:
        if self._query.is_changing():
            # It goes on as soon as the query has come so far.
            return 0.0
        return self._soon_s if self._is_awaiting else self._look_interval_s

    def trim(self, alive: Collection[int] = ()) -> int:
        """Delete what every node has consumed of the log of `requests`; returns how many files."""
        mine = self._say_consumed()
        if mine is None or self.serving is None or not self.does_upkeep():
            return 0
        owners = {state.owner for state in self._cluster.partitions.values()}
        others = {n for n in {*alive, *owners} if n is not None} - {self.node.node_id}
        return self.serving.trim(min([mine, *map(self._decisions.consumed_by, others)]))

    def _say_consumed(self) -> int | None:
        if self.serving is not None:
            version = self._query.consumed()
        elif self._cluster.owned_by(self.node.node_id):
            # Its query has not begun yet. The streaming checkpoint that it goes on from may be far
            # behind: if others trimmed the log up to now, its next batch could not be read.
            version = None
        else:
            # A node without partitions needs nothing of what is there: its first claim loads it.
            version = open_table(self._root, REQUESTS).version()
        if version is not None and version != self._said_consumed:
            self._decisions.say_consumed(self.node.node_id, version)
            self._said_consumed = version
        return version

    def hand_over(self) -> None:
        """Have the next ticks give what this node owns to others, and take nothing more.

        No error if another start of the node was faster: the next tick says so.
        """
        self._cluster, _ = self._decisions.decide_until(
            lambda cluster: self._if_latest(cluster, STOPPING)
        )
        self._look_at = 0.0

    def to_hand_over(self) -> int:
        """How many partitions are still to be given to others; 0 if nobody could take them."""
        return len(self._cluster.owned_by(self.node.node_id)) if self._others else 0

    def stop(self) -> None:
        """Stop between two batches, and say so: other nodes need not wait for the lease to end."""
        self._query.stop()
        # Not before: a stop that hangs is to cost this node its lease.
        self._progress.watch(None)
        self.lease.stop()
        self._decisions.decide_until(lambda cluster: self._if_latest(cluster, STOPPED))

    def abandon(self) -> None:
        """End the query as it stands and the lease's renewal, and say nothing of it to anyone."""
        self.lease.stop()
        self._query.abandon()

    def _if_latest(self, cluster: ClusterState, what: str) -> list[CoordinatorEvent]:
        """An event of this node, unless it has started anew since."""
        node = cluster.nodes.get(self.node.node_id)
        is_latest = node is not None and node.epoch == self.epoch.number
        return [self._event(what)] if is_latest else []

    # --- decisions ------------------------------------------------------------------------------

    def _started(self, seen: SeenLease | None, cluster: ClusterState) -> list[CoordinatorEvent]:
        if seen is not None:
            me = self.node.node_id
            check_alone(seen, cluster.nodes.get(me), self._decisions.lease_of(me))
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
            if self._query.go_on(self._cluster):
                self._release()
        elif (plan.unload or plan.claim) and self.serving is not None and not self.is_ready():
            # One change after the other.
            return
        elif self.is_ready() and not self._cluster.nodes[self.node.node_id].ready:
            self._decisions.decide(self._cluster, [self._event(READY)])
        elif plan.unload:
            self._give_up(plan.unload)
        elif plan.claim:
            self._take(plan)
        elif plan.moves:
            self._decisions.decide(self._cluster, self._moves(plan))
        elif self.serving is None:
            self._serve()

    def _prepare_for_claims(self) -> None:
        """Read ahead what the claims of partitions that are on their way here need, and say so."""
        self._query.read_ahead(self._cluster)
        mine = self._cluster.meant_for(self.node.node_id)
        newest = max((state.meant_epoch for state in mine.values()), default=self.epoch.number)
        if self._said_prepared < newest:
            self._said_prepared = self._cluster.epoch
            self._decisions.say_prepared(self.node.node_id, self._said_prepared)

    def _give_up(self, partitions: tuple[int, ...]) -> None:
        """Unload partitions; `_release` releases them to whom they are meant for."""
        fresh = [p for p in partitions if not self._cluster.partitions[p].unloading]
        if fresh:
            cluster = self._decisions.decide(self._cluster, self._events(UNLOADING, fresh))
            if cluster is None:
                return
            self._cluster = cluster
        log.info("giving up %d partitions: %s", len(partitions), named(partitions))
        self._serve(partitions)

    def _release(self) -> None:
        self._cluster, _ = self._decisions.decide_until(
            lambda cluster: self._events(
                RELEASED, (p for p, s in cluster.owned_by(self.node.node_id).items() if s.unloading)
            )
        )

    def _take(self, plan: Plan) -> None:
        """Claim partitions, once their dead owners are fenced, and load them."""
        for node_id in plan.fence:
            if self._cluster.nodes[node_id].stopped:
                log.info("node %d has stopped: its partitions are taken over", node_id)
            else:
                log.warning("node %d is gone: its partitions are taken over", node_id)
        fenced = partial(fence_dead, self._root, self._cluster, plan.fence)
        if not Patience(self._config.offsets_commit_timeout_ms).until_done("fence", fenced):
            # The cluster state has more to tell.
            return
        claimed = self._decisions.decide(self._cluster, self._events(CLAIMED, plan.claim))
        self._cluster = claimed or self._decisions.read()
        if claimed is None:
            # Somebody else has decided something, and what that was comes first.
            return
        log.info("claimed %d partitions: %s", len(plan.claim), named(plan.claim))
        self._serve()

    def _serve(self, unload: Collection[int] = ()) -> None:
        """Have the query decide for the partitions that are this node's by now."""
        if self.serving is None:
            self._progress.watch(self._query.begin(self._cluster, unload).progress)
        else:
            self._query.change(self._cluster, unload)


def start(
    engine: StreamEngine, root: str, settings: Settings, seen: SeenLease | None = None
) -> CoordinatorNode:
    """Start a node at `root`, creating the tables that are missing.

    Every earlier start of the same node is fenced off: it can write nothing more, and stops. The
    query begins at once if there are partitions for the node, else once there are. `seen` is the
    node's lease as it was some seconds ago: NodeRuns is raised if another process has renewed it
    since. Raises SchemaMismatch, LaterRelease, ConfigError, and FencedError if the node was started
    again meanwhile.
    """
    ensure_tables(root)
    coordinator = CoordinatorNode(engine, root, settings, seen)
    coordinator.tick()
    return coordinator
