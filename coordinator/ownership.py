"""Which coordinator owns which offsets partition: the cluster state, and what a node does next.

The `coordinators` table is a log of decisions. Each decision has an epoch, one more than the one
before, and is taken only on the newest cluster state: two nodes that decide at once get two epochs,
and the later one looks again. Folding the log gives the cluster state; every node folds the same
one.

A partition's life: claimed by a node; meant for another (`move`), which can be cancelled; being
given up (`unloading`), which cannot; `released`, and claimed by the other. A node is alive while
its lease is renewed, which the caller knows; the partitions of one that is not are free to claim,
once it has been fenced.

A node with a negative number is an operator's: it holds partitions for a while, and gets only those
that are meant for it.

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
    """A node as it last started. Times in ms.

    `unused`: nothing has been its own, or was meant for it, since it started.
    """

    node_id: int
    host: str
    port: int
    epoch: int
    started_at: int
    stopped: bool = False
    unused: bool = True


class PartitionState(Struct, frozen=True):
    """An offsets partition: its owner since `claimed_at` (ms), null if it is free.

    `epoch` is that of the claim. `to_node` is whom it is meant for, `unloading` whether its owner
    has begun to give it up.
    """

    partition: int
    owner: int | None = None
    epoch: int = NO_EPOCH
    claimed_at: int = 0
    to_node: int | None = None
    unloading: bool = False


class ClusterState(Struct, frozen=True):
    """Everything decided up to `epoch`."""

    epoch: int = NO_EPOCH
    nodes: dict[int, NodeState] = {}
    partitions: dict[int, PartitionState] = {}

    def owned_by(self, node_id: int) -> dict[int, PartitionState]:
        """The partitions of a node."""
        return {p: state for p, state in self.partitions.items() if state.owner == node_id}

    def kept_by(self, node_id: int) -> dict[int, PartitionState]:
        """The partitions of a node but for those that it is giving up."""
        return {p: state for p, state in self.owned_by(node_id).items() if not state.unloading}


class Plan(Struct, frozen=True):
    """What a node does next, as far as it can; sorted partitions.

    `unload` it gives up. `claim` it takes, after it has fenced the nodes in `fence`. `moves` are to
    be decided: partition and whom it is meant for.
    """

    unload: tuple[int, ...] = ()
    claim: tuple[int, ...] = ()
    fence: tuple[int, ...] = ()
    moves: tuple[tuple[int, int], ...] = ()


# --- folding the log ----------------------------------------------------------------------------


def fold(cluster: ClusterState, events: Iterable[CoordinatorEvent]) -> ClusterState:
    """The cluster state after these events; those that it has already are passed over."""
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
    """What node `me` does next; `alive` are the nodes whose lease holds, it among them.

    A partition that is meant for a node that is not alive stays where it is until that node comes.
    """
    mine = cluster.owned_by(me)
    unload = [
        number
        for number, state in mine.items()
        if state.unloading or (state.to_node not in (None, me) and state.to_node in alive)
    ]
    claim = [p for p, node_id in _deal(cluster, alive, num_partitions).items() if node_id == me]
    owners = {cluster.partitions[p].owner for p in claim if p in cluster.partitions}
    return Plan(
        unload=tuple(sorted(unload)),
        claim=tuple(sorted(claim)),
        fence=tuple(sorted(owner for owner in owners if owner is not None)),
        moves=_fill(cluster, me, alive),
    )


def _loads(cluster: ClusterState, alive: Collection[int]) -> Counter[int]:
    """How many partitions each living node has, or is meant to have."""
    load = Counter(dict.fromkeys(alive, 0))
    for state in cluster.partitions.values():
        for node_id in (state.to_node, state.owner):
            if node_id is not None and node_id in alive:
                load[node_id] += 1
                break
    return load


def _deal(cluster: ClusterState, alive: Collection[int], num_partitions: int) -> dict[int, int]:
    """Who claims each partition that is free: whom it is meant for, else who has least."""
    load = _loads(cluster, alive)
    nodes = [node_id for node_id in alive if node_id >= 0]
    dealt: dict[int, int] = {}
    for number in range(num_partitions):
        state = cluster.partitions.get(number, PartitionState(number))
        if state.owner is not None and state.owner in alive:
            continue
        if state.to_node is not None and state.to_node in alive:
            dealt[number] = state.to_node
        elif nodes:
            dealt[number] = min(nodes, key=lambda each: (load[each], each))
            load[dealt[number]] += 1
    return dealt


def _fill(cluster: ClusterState, me: int, alive: Collection[int]) -> tuple[tuple[int, int], ...]:
    """Partitions for the nodes that started since and have none yet; one node decides for all."""
    resting: dict[int, list[int]] = {}
    for number, state in sorted(cluster.partitions.items()):
        if state.owner is not None and state.owner in alive and state.to_node is None:
            resting.setdefault(state.owner, []).append(number)
    unused = sorted(n for n in alive if n >= 0 and n in cluster.nodes and cluster.nodes[n].unused)
    if me != min(resting, default=None):
        return ()
    load = _loads(cluster, alive)
    moves: list[tuple[int, int]] = []
    for node_id in unused:
        while True:
            richest = max(resting, key=lambda each: (load[each], -each))
            if load[richest] <= load[node_id] + 1 or not resting[richest]:
                break
            moves.append((resting[richest].pop(), node_id))
            load[richest] -= 1
            load[node_id] += 1
    return tuple(moves)
