"""Which coordinator owns which offsets partition: the cluster state, and what a node does next.

The `coordinators` table is a log of decisions. Each decision has an epoch, one more than the last
one, and is appended only if it was made on the newest cluster state: of two nodes that decide at
the same time, the second one is refused and decides again. Folding the log gives every node the
same cluster state.

A partition is claimed by a node. A `move` says which other node it is meant for, and can be
cancelled until the owner begins `unloading` it; then the owner has `released` it and the other node
claims it. A node is alive while its lease is renewed, which the caller knows. The partitions of a
node that is not alive may be claimed by a node that has fenced it.

A node with a negative number is an operator's, for example an import's: it is given only the
partitions that are meant for it.

There is no counterpart in Kafka's coordinator, where the leader of a partition of
__consumer_offsets is elected by the controller; the effects are those of
GroupCoordinatorService.onElection and onResignation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from schemas.records import CoordinatorEvent

STARTED = "started"
STOPPED = "stopped"
CLAIMED = "claimed"
MOVE = "move"
CANCELLED = "cancelled"
UNLOADING = "unloading"
RELEASED = "released"

NO_EPOCH = -1


class NodeState(Struct, frozen=True):
    """A node since its last start. Times in ms.

    `epoch` is that of the start. `unused`: since the start the node has owned no partition, and
    none was meant for it.
    """

    node_id: int
    host: str
    port: int
    epoch: int
    started_at: int
    stopped: bool = False
    unused: bool = True


class PartitionState(Struct, frozen=True):
    """An offsets partition: its owner since `claimed_at` (ms), None if it has none.

    `epoch` is that of the claim. `to_node` is the node that the partition is meant for, `unloading`
    whether its owner has begun to give it up.
    """

    partition: int
    owner: int | None = None
    epoch: int = NO_EPOCH
    claimed_at: int = 0
    to_node: int | None = None
    unloading: bool = False


class ClusterState(Struct, frozen=True):
    """The nodes and partitions after the decision of `epoch`."""

    epoch: int = NO_EPOCH
    nodes: dict[int, NodeState] = {}
    partitions: dict[int, PartitionState] = {}

    def owned_by(self, node_id: int) -> dict[int, PartitionState]:
        """The partitions that a node owns."""
        return {p: state for p, state in self.partitions.items() if state.owner == node_id}

    def kept_by(self, node_id: int) -> dict[int, PartitionState]:
        """The partitions that a node owns and is not giving up."""
        return {p: state for p, state in self.owned_by(node_id).items() if not state.unloading}


class Plan(Struct, frozen=True):
    """What a node does next; all sorted by partition.

    The node gives up the partitions in `unload`, fences the nodes in `fence` and then claims those
    in `claim`. It decides `moves`, pairs of a partition and the node that it is meant for.
    """

    unload: tuple[int, ...] = ()
    claim: tuple[int, ...] = ()
    fence: tuple[int, ...] = ()
    moves: tuple[tuple[int, int], ...] = ()


# --- folding the log ----------------------------------------------------------------------------


def fold(cluster: ClusterState, events: Iterable[CoordinatorEvent]) -> ClusterState:
    """The cluster state after these events; events of epochs that it includes are ignored."""
    nodes, partitions = dict(cluster.nodes), dict(cluster.partitions)
    epoch = cluster.epoch
    for event in sorted(events, key=lambda each: each.epoch):
        if event.epoch <= cluster.epoch:
            continue
        epoch = event.epoch
        if event.partition is None:
            _apply_to_node(nodes, partitions, event)
        else:
            _apply_to_partition(nodes, partitions, event, event.partition)
    return ClusterState(epoch, nodes, partitions)


def _apply_to_node(
    nodes: dict[int, NodeState], partitions: dict[int, PartitionState], event: CoordinatorEvent
) -> None:
    node_id = event.node_id
    if event.event == STARTED:
        unused = all(state.owner != node_id for state in partitions.values())
        nodes[node_id] = NodeState(
            node_id, event.host or "", event.port or 0, event.epoch, event.at, unused=unused
        )
    elif event.event == STOPPED and node_id in nodes:
        nodes[node_id] = replace(nodes[node_id], stopped=True)


def _apply_to_partition(
    nodes: dict[int, NodeState],
    partitions: dict[int, PartitionState],
    event: CoordinatorEvent,
    number: int,
) -> None:
    before = partitions.get(number, PartitionState(number))
    if event.event == CLAIMED:
        after = PartitionState(number, event.node_id, event.epoch, event.at)
        _mark_used(nodes, event.node_id)
    elif event.event == MOVE:
        after = replace(before, to_node=event.to_node)
        _mark_used(nodes, event.to_node)
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


def _mark_used(nodes: dict[int, NodeState], node_id: int | None) -> None:
    if node_id is not None and node_id in nodes:
        nodes[node_id] = replace(nodes[node_id], unused=False)


# --- deciding -----------------------------------------------------------------------------------


def decide(cluster: ClusterState, me: int, alive: Collection[int], num_partitions: int) -> Plan:
    """What node `me` does next; `alive` are the nodes whose lease holds, `me` among them.

    A partition that is meant for a node that is not alive stays with its owner until that node is.
    """
    mine = cluster.owned_by(me)
    unload = [
        number
        for number, state in mine.items()
        if state.unloading or (state.to_node not in (None, me) and state.to_node in alive)
    ]
    free = _assign_free(cluster, alive, num_partitions)
    claim = [number for number, node_id in free.items() if node_id == me]
    owners = {cluster.partitions[p].owner for p in claim if p in cluster.partitions}
    return Plan(
        unload=tuple(sorted(unload)),
        claim=tuple(sorted(claim)),
        fence=tuple(sorted(owner for owner in owners if owner is not None)),
        moves=_moves_to_unused(cluster, me, alive),
    )


def _loads(cluster: ClusterState, alive: Collection[int]) -> Counter[int]:
    """How many partitions each node that is alive will have once all moves are made."""
    load = Counter(dict.fromkeys(alive, 0))
    for state in cluster.partitions.values():
        for node_id in (state.to_node, state.owner):
            if node_id is not None and node_id in alive:
                load[node_id] += 1
                break
    return load


def _assign_free(
    cluster: ClusterState, alive: Collection[int], num_partitions: int
) -> dict[int, int]:
    """Which node claims each free partition: the one it is meant for, else one with the fewest."""
    load = _loads(cluster, alive)
    nodes = [node_id for node_id in alive if node_id >= 0]
    assigned: dict[int, int] = {}
    for number in range(num_partitions):
        state = cluster.partitions.get(number, PartitionState(number))
        if state.owner is not None and state.owner in alive:
            continue
        if state.to_node is not None and state.to_node in alive:
            assigned[number] = state.to_node
        elif nodes:
            assigned[number] = min(nodes, key=lambda each: (load[each], each))
            load[assigned[number]] += 1
    return assigned


def _moves_to_unused(
    cluster: ClusterState, me: int, alive: Collection[int]
) -> tuple[tuple[int, int], ...]:
    """Moves to nodes that have started and have no partition yet; the lowest owner decides them."""
    movable: dict[int, list[int]] = {}
    for number, state in sorted(cluster.partitions.items()):
        if state.owner is not None and state.owner in alive and state.to_node is None:
            movable.setdefault(state.owner, []).append(number)
    unused = sorted(n for n in alive if n >= 0 and n in cluster.nodes and cluster.nodes[n].unused)
    if me != min(movable, default=None):
        return ()
    load = _loads(cluster, alive)
    moves: list[tuple[int, int]] = []
    for node_id in unused:
        while True:
            fullest = max(movable, key=lambda each: (load[each], -each))
            if load[fullest] <= load[node_id] + 1 or not movable[fullest]:
                break
            moves.append((movable[fullest].pop(), node_id))
            load[fullest] -= 1
            load[node_id] += 1
    return tuple(moves)
