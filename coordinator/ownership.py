"""Ownership of offsets partitions by coordinators: the cluster state, and each node's next actions.

The table `coordinators` is a log of decisions. Each decision has an epoch, one more than the last
one, and is appended only if it was made on the newest cluster state: if two nodes decide at the
same time, the second append is refused and that node decides again. Folding the log gives every
node the same cluster state.

A node claims a partition. A `move` names another node as its target; it can be cancelled until the
owner begins `unloading` the partition. After unloading, the owner has `released` it and the target
claims it. A node is alive while its lease is renewed; the caller knows which nodes are alive, by
its monotonic clock. A node may claim the partitions of a dead node after it has fenced that node.

The numbers of partitions are balanced: while some node has at least two partitions more than
another one, the lowest numbered node that owns partitions decides moves from the fullest node to
the emptiest one. This needs the fewest moves. A difference of one stays, so partitions never move
back and forth.

* A node starts: it receives partitions once its query runs and it has declared itself `ready`, so
  that no group waits for the start of a query. Ready nodes claim partitions without an owner; if
  there is none, every live node that is not stopping may.
* A partition moves: its owner decides for it until the target has read ahead the data that the
  claim needs, or a bounded time has passed (`pipeline.ownership.decision_log`).
* The target of a move restarts: the owner keeps the partition until the target is ready. If it was
  released already, ready nodes claim it.
* Nodes start while partitions move: at most `MOST_MOVING` partitions move at a time, and each
  counts for its target. So a partition does not move again before its target has claimed it, and a
  node that never claims blocks at most this many partitions, until its lease ends.
* A node is killed: partitions that were to move to it stay with their owners, or, if released
  already, go to the nodes with the fewest partitions. If it decided the moves, the next lowest node
  does, after it has fenced the dead one and claimed its partitions. A node that starts again within
  its lease owns the same partitions.
* A node is asked to stop: it declares itself `stopping`, receives no further partition, and decides
  moves of all its partitions to ready nodes. Partitions without a target stay with it, and are
  claimed once it has stopped.
* An operator moves partitions, or cancels a move: the operator's distribution is kept until a node
  starts that owns nothing (`ClusterState.by_hand`).

A negative node number belongs to an operator, for example to an import. Such a node receives only
the partitions that are moved to it, and balancing waits while it has any.

Source: GroupCoordinatorService.onElection and onResignation; preferred leader election
(KafkaController.checkAndTriggerAutoLeaderRebalance); KIP-631 (WantShutDown of BrokerHeartbeat).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.schemas.records import CoordinatorEvent

STARTED = "started"
READY = "ready"
STOPPING = "stopping"
STOPPED = "stopped"
CLAIMED = "claimed"
MOVE = "move"
CANCELLED = "cancelled"
UNLOADING = "unloading"
RELEASED = "released"

NO_EPOCH = -1
# The most partitions that move at a time for balanced shares. Groups of partitions that move
# together wait until all of these partitions are loaded.
MOST_MOVING = 10


class NodeState(Struct, frozen=True):
    """A node since its process last started, in the decision of `epoch`. Times in ms.

    `ready`: its query has run since then. `stopping`: it moves its partitions away and then stops.
    `process` describes the process, for users.
    """

    node_id: int
    host: str
    port: int
    epoch: int
    started_at: int
    ready: bool = False
    stopping: bool = False
    stopped: bool = False
    process: str | None = None


class PartitionState(Struct, frozen=True):
    """An offsets partition and its owner since `claimed_at` (ms); `owner` None: no node owns it.

    `epoch` is the epoch of the claim. `to_node` is the target of its move, which was decided in
    `meant_epoch`. `unloading`: the owner has begun to unload it.
    """

    partition: int
    owner: int | None = None
    epoch: int = NO_EPOCH
    claimed_at: int = 0
    to_node: int | None = None
    unloading: bool = False
    meant_epoch: int = NO_EPOCH

    @property
    def is_let_go(self) -> bool:
        """Whether the partition is being unloaded, or has no owner."""
        return self.unloading or self.owner is None


class ClusterState(Struct, frozen=True):
    """The nodes and partitions after the decision of `epoch`.

    `by_hand`: an operator moved a partition or cancelled a move, and no node without partitions has
    started since.
    """

    epoch: int = NO_EPOCH
    nodes: dict[int, NodeState] = {}
    partitions: dict[int, PartitionState] = {}
    by_hand: bool = False

    def owned_by(self, node_id: int) -> dict[int, PartitionState]:
        """Return the partitions that a node owns, also those it is unloading."""
        return {p: state for p, state in self.partitions.items() if state.owner == node_id}

    def meant_for(self, node_id: int) -> dict[int, PartitionState]:
        """Return the partitions that move to a node and that it does not own yet."""
        return {
            p: state
            for p, state in self.partitions.items()
            if state.to_node == node_id and state.owner != node_id
        }

    def kept_by(self, node_id: int) -> dict[int, PartitionState]:
        """Return the partitions that a node owns and is not unloading."""
        return {p: state for p, state in self.owned_by(node_id).items() if not state.unloading}


class Plan(Struct, frozen=True):
    """The next actions of a node, sorted by partition.

    The node unloads the partitions in `unload`, fences the nodes in `fence`, then claims the
    partitions in `claim`. It decides `moves`, pairs of a partition and its target node.
    """

    unload: tuple[int, ...] = ()
    claim: tuple[int, ...] = ()
    fence: tuple[int, ...] = ()
    moves: tuple[tuple[int, int], ...] = ()


# --- folding the log ----------------------------------------------------------------------------


def fold(cluster: ClusterState, events: Iterable[CoordinatorEvent]) -> ClusterState:
    """Apply events to a cluster state, except those of epochs that it already includes."""
    nodes, partitions = dict(cluster.nodes), dict(cluster.partitions)
    epoch, by_hand = cluster.epoch, cluster.by_hand
    for event in sorted(events, key=lambda event: event.epoch):
        if event.epoch <= cluster.epoch:
            continue
        epoch = event.epoch
        by_hand = _is_by_hand(by_hand, partitions, event)
        if event.partition is None:
            _apply_to_node(nodes, event)
        else:
            _apply_to_partition(partitions, event, event.partition)
    return ClusterState(epoch, nodes, partitions, by_hand)


def _is_by_hand(
    before: bool, partitions: dict[int, PartitionState], event: CoordinatorEvent
) -> bool:
    """Return `by_hand` after an event; `partitions` is the state before the event."""
    if event.event == STARTED and event.node_id >= 0:
        joins = all(state.owner != event.node_id for state in partitions.values())
        return before and not joins
    if event.node_id >= 0 or event.partition is None:
        return before
    to_node = event.to_node if event.event == MOVE else None
    if event.event == CANCELLED and event.partition in partitions:
        to_node = partitions[event.partition].to_node
    # Partitions that an import claims and releases do not change shares.
    return before or (to_node is not None and to_node >= 0)


def _apply_to_node(nodes: dict[int, NodeState], event: CoordinatorEvent) -> None:
    node_id = event.node_id
    if event.event == STARTED:
        host, port = event.host or "", event.port or 0
        nodes[node_id] = NodeState(node_id, host, port, event.epoch, event.at, process=event.reason)
    elif event.event in (READY, STOPPING, STOPPED) and node_id in nodes:
        # Each of these events is the name of the field that it sets.
        nodes[node_id] = replace(nodes[node_id], **{event.event: True})


def _apply_to_partition(
    partitions: dict[int, PartitionState], event: CoordinatorEvent, number: int
) -> None:
    before = partitions.get(number, PartitionState(number))
    if event.event == CLAIMED:
        after = PartitionState(number, event.node_id, event.epoch, event.at)
    elif event.event == MOVE:
        after = replace(before, to_node=event.to_node, meant_epoch=event.epoch)
    elif event.event == CANCELLED:
        after = replace(before, to_node=None)
    elif event.event == UNLOADING:
        after = replace(before, unloading=True)
    elif event.event == RELEASED:
        to_node = before.to_node if event.to_node is None else event.to_node
        after = replace(before, owner=None, unloading=False, to_node=to_node)
    else:
        after = before
    partitions[number] = after


# --- deciding -----------------------------------------------------------------------------------


def decide(
    cluster: ClusterState,
    me: int,
    alive: Collection[int],
    num_partitions: int,
    held: Collection[int] = (),
) -> Plan:
    """Decide the next actions of node `me`; `alive` are the nodes with a valid lease, and `me`.

    A partition stays with its owner while its move's target is dead or not ready, or while the
    partition is in `held` because the target still prepares for it.
    """
    stays = [node_id for node_id in alive if not _is_stopping(cluster, node_id)]
    ready = takers(cluster, alive)
    receivers = {*ready, *(node_id for node_id in stays if node_id < 0)}
    unload = [
        number
        for number, state in cluster.owned_by(me).items()
        if state.unloading
        or (state.to_node != me and state.to_node in receivers and number not in held)
    ]
    free = _assign_free(cluster, alive, ready or stays, receivers, num_partitions)
    claim = [number for number, node_id in free.items() if node_id == me]
    owners = {cluster.partitions[p].owner for p in claim if p in cluster.partitions}
    if _is_stopping(cluster, me):
        moves = _moves_before_stop(cluster, me, ready, receivers)
    else:
        moves = _evening_moves(cluster, me, alive, ready, num_partitions)
    return Plan(
        unload=tuple(sorted(unload)),
        claim=tuple(sorted(claim)),
        fence=tuple(sorted(owner for owner in owners if owner is not None)),
        moves=moves,
    )


def takers(cluster: ClusterState, alive: Collection[int]) -> frozenset[int]:
    """Return the live nodes to which partitions are given: ready, not stopping, no operators."""
    return frozenset(
        node_id
        for node_id, node in cluster.nodes.items()
        if node_id in alive and node_id >= 0 and node.ready and not node.stopping
    )


def _is_stopping(cluster: ClusterState, node_id: int) -> bool:
    node = cluster.nodes.get(node_id)
    return node is not None and node.stopping


def _loads(cluster: ClusterState, alive: Collection[int]) -> Counter[int]:
    load = Counter(dict.fromkeys(alive, 0))
    for state in cluster.partitions.values():
        for node_id in (state.to_node, state.owner):
            if node_id is not None and node_id in alive:
                load[node_id] += 1
                break
    return load


def _assign_free(
    cluster: ClusterState,
    alive: Collection[int],
    candidates: Collection[int],
    receivers: Collection[int],
    num_partitions: int,
) -> dict[int, int]:
    """Assign free partitions to their moves' targets, or without a move to the emptiest node.

    `candidates` are the ready nodes; if there are none, all nodes that are not stopping.
    """
    load = _loads(cluster, alive)
    nodes = [node_id for node_id in candidates if node_id >= 0]
    assigned: dict[int, int] = {}
    for number in range(num_partitions):
        state = cluster.partitions.get(number, PartitionState(number))
        if state.owner is not None and state.owner in alive:
            continue
        if state.to_node is not None and (state.to_node in receivers or state.to_node in nodes):
            assigned[number] = state.to_node
        elif nodes:
            assigned[number] = min(nodes, key=lambda each: (load[each], each))
            load[assigned[number]] += 1
    return assigned


def _evening_moves(
    cluster: ClusterState,
    me: int,
    alive: Collection[int],
    ready: Collection[int],
    num_partitions: int,
) -> tuple[tuple[int, int], ...]:
    """Return the moves that balance the shares; only the lowest numbered owner decides any."""
    found = None if cluster.by_hand else _movable(cluster, alive, num_partitions)
    if found is None:
        return ()
    movable, under_way = found
    if me != min(movable, default=None):
        return ()
    load = _loads(cluster, alive)
    moves: list[tuple[int, int]] = []
    while movable and ready and under_way + len(moves) < MOST_MOVING:
        fullest = max(movable, key=lambda each: (load[each], -each))
        emptiest = min(ready, key=lambda each: (load[each], each))
        if load[fullest] < load[emptiest] + 2:
            break
        moves.append((movable[fullest].pop(), emptiest))
        load[fullest] -= 1
        load[emptiest] += 1
        if not movable[fullest]:
            del movable[fullest]
    return tuple(moves)


def _moves_before_stop(
    cluster: ClusterState, me: int, ready: Collection[int], receivers: Collection[int]
) -> tuple[tuple[int, int], ...]:
    """Return the moves of a stopping node's partitions to the nodes with the fewest.

    A partition that already moves to a node that can receive it keeps this target.
    """
    load = _loads(cluster, ready)
    moves: list[tuple[int, int]] = []
    for number, state in sorted(cluster.kept_by(me).items()):
        if ready and state.to_node not in receivers:
            moves.append((number, min(ready, key=lambda each: (load[each], each))))
            load[moves[-1][1]] += 1
    return tuple(moves)


def _movable(
    cluster: ClusterState, alive: Collection[int], num_partitions: int
) -> tuple[dict[int, list[int]], int] | None:
    """Return each owner's movable partitions, and the number of partitions that move.

    The last partition of a list is moved first. None while a partition must be claimed first,
    because it has no live owner, or belongs to an operator.
    """
    plain: dict[int, list[int]] = {}
    waiting: dict[int, list[int]] = {}
    under_way = 0
    for number in range(num_partitions):
        state = cluster.partitions.get(number, PartitionState(number))
        to_node = state.to_node if state.to_node in alive else None
        holders = [each for each in (state.owner, to_node) if each is not None]
        if not holders or min(holders) < 0 or (to_node is None and state.owner not in alive):
            return None
        if state.owner is None or state.unloading or to_node not in (None, state.owner):
            under_way += 1
        elif state.to_node is None:
            plain.setdefault(state.owner, []).append(number)
        else:
            # It waits for a node that is not alive: a move to another node replaces the target.
            waiting.setdefault(state.owner, []).append(number)
    owners = plain.keys() | waiting.keys()
    return {each: waiting.get(each, []) + plain.get(each, []) for each in owners}, under_way


def lease_app_id(node_id: int) -> str:
    """Return the Delta application id of a node's lease.

    The version of its transactions is the time of the renewal (ms).
    """
    return f"coordinator-lease-{node_id}"


def named(partitions: Collection[int]) -> str:
    """Format partitions as ranges: "0-3, 7"."""
    parts: list[list[int]] = []
    for number in sorted(partitions):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
