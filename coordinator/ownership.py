"""Which coordinator owns which offsets partition: the cluster state, and what a node does next.

The `coordinators` table is a log of decisions. Each decision has an epoch, one more than the last
one, and is appended only if it was made on the newest cluster state: of two nodes that decide at
the same time, the second one is refused and decides again. Folding the log gives every node the
same cluster state.

A partition is claimed by a node. A `move` says which other node it is meant for, and can be
cancelled until the owner begins `unloading` it; then the owner has `released` it and the other node
claims it. A node is alive while its lease is renewed, which the caller knows. The partitions of a
node that is not alive may be claimed by a node that has fenced it.

Shares are evened out: while some node has two partitions more than another one, the node with the
lowest number of all that own partitions decides moves from the fullest to the emptiest. That takes
the fewest moves that there can be, and shares that differ by one stay as they are, so nothing moves
back and forth. What a neighbour may do meanwhile:

* Two nodes decide at the same time: the log refuses the second one, which decides again on what the
  first one has decided. A node that takes the one that decides for dead decides no move before it
  has fenced that one and claimed what it had.
* A node starts: it is given partitions once its query runs and has said that it is `ready`, so that
  no group waits for the start of a query, and a node that ends again while it starts is given none.
  What has no owner is claimed by nodes that are ready, if there are any.
* A partition is to be moved: its owner decides for it until the other node has read ahead what the
  claim will need, so that no group waits for that. It waits a bounded time for the other node
  (`pipeline.ownership.prepared`).
* A partition is moved to a node that starts anew: its owner keeps it until that node is ready. If
  it was released before the node ended, nodes that are ready take it.
* Several nodes start at once, or one more while partitions move: at most `MOST_MOVING` partitions
  are under way at a time, and each counts as the share of the node that it is meant for. So no
  partition is given on before its new owner has claimed it, and a node that never claims keeps no
  more than these from being served, until its lease ends.
* A node is killed: what was meant for it stays with its owner, or goes to the nodes with the fewest
  if it was released already. If the node that decides is killed, the next lowest one goes on.
* A node is killed and starts again within its lease: it owns what it owned, so nothing moves.
* A clock steps back: no rule here asks a clock. Who is alive, the caller's monotonic clock tells.
* A node is told to end: it says that it is `stopping`, and moves all it owns to nodes that are
  ready, at once. It goes on deciding until each of them has read ahead, and is given nothing more.
  Several may stop together: what nobody is left to take stays with them, and is claimed once they
  have stopped.
* An operator moves partitions, or cancels a move: shares stay as the operator makes them until a
  node starts that owns nothing (`ClusterState.by_hand`).

A node with a negative number is an operator's, for example an import's: it is given only the
partitions that are meant for it, and shares wait while it has any.

There is no counterpart in Kafka's coordinator, where the leader of a partition of
__consumer_offsets is elected by the controller; the effects are those of
GroupCoordinatorService.onElection and onResignation. Kafka's brokers come back to even shares by
the preferred leader's election (KafkaController.checkAndTriggerAutoLeaderRebalance), its consumers
by the fewest moves (AbstractStickyAssignor). A broker that is told to end is relieved of its
leaderships first, too (KIP-631, WantShutDown of BrokerHeartbeat).
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
# The most partitions that are under way at a time so that shares become even. The groups of those
# that move together wait for the loading of all of them.
MOST_MOVING = 10


class NodeState(Struct, frozen=True):
    """A node since its last start, whose epoch is `epoch`. Times in ms.

    `ready`: its query has run since then. `stopping`: it gives away what it owns, and then stops.
    `process` is what the start says of itself, for people.
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
    """An offsets partition: its owner since `claimed_at` (ms), None if it has none.

    `epoch` is that of the claim. `to_node` is the node that the partition is meant for, since the
    decision of `meant_epoch`; `unloading`, whether its owner has begun to give it up.
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
        """Whether its owner gives it up, or it has none."""
        return self.unloading or self.owner is None


class ClusterState(Struct, frozen=True):
    """The nodes and partitions after the decision of `epoch`.

    `by_hand`: since a node last joined, an operator has said where some partition shall be.
    """

    epoch: int = NO_EPOCH
    nodes: dict[int, NodeState] = {}
    partitions: dict[int, PartitionState] = {}
    by_hand: bool = False

    def owned_by(self, node_id: int) -> dict[int, PartitionState]:
        """The partitions that a node owns."""
        return {p: state for p, state in self.partitions.items() if state.owner == node_id}

    def meant_for(self, node_id: int) -> dict[int, PartitionState]:
        """The partitions that are on their way to a node: others own them, or nobody does."""
        return {
            p: state
            for p, state in self.partitions.items()
            if state.to_node == node_id and state.owner != node_id
        }

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
    epoch, by_hand = cluster.epoch, cluster.by_hand
    for event in sorted(events, key=lambda each: each.epoch):
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
    """Whether shares stay as an operator made them; `partitions` are those before the event."""
    if event.event == STARTED and event.node_id >= 0:
        joins = all(state.owner != event.node_id for state in partitions.values())
        return before and not joins
    if event.node_id >= 0 or event.partition is None:
        return before
    to_node = event.to_node if event.event == MOVE else None
    if event.event == CANCELLED and event.partition in partitions:
        to_node = partitions[event.partition].to_node
    # What an import takes and gives back is nobody's share.
    return before or (to_node is not None and to_node >= 0)


def _apply_to_node(nodes: dict[int, NodeState], event: CoordinatorEvent) -> None:
    node_id = event.node_id
    if event.event == STARTED:
        nodes[node_id] = NodeState(
            node_id,
            event.host or "",
            event.port or 0,
            event.epoch,
            event.at,
            process=event.reason,
        )
    elif event.event == READY and node_id in nodes:
        nodes[node_id] = replace(nodes[node_id], ready=True)
    elif event.event == STOPPING and node_id in nodes:
        nodes[node_id] = replace(nodes[node_id], stopping=True)
    elif event.event == STOPPED and node_id in nodes:
        nodes[node_id] = replace(nodes[node_id], stopped=True)


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
    """What node `me` does next; `alive` are the nodes whose lease holds, `me` among them.

    A partition that is meant for a node that is not alive, or that is not ready, stays with its
    owner until that node is. So does one that is `held`: the node that it is meant for still
    prepares for it.
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
    """The nodes that may be given partitions: their query runs, and they are not stopping.

    No operator's is among them.
    """
    return frozenset(
        node_id
        for node_id, node in cluster.nodes.items()
        if node_id in alive and node_id >= 0 and node.ready and not node.stopping
    )


def _is_stopping(cluster: ClusterState, node_id: int) -> bool:
    node = cluster.nodes.get(node_id)
    return node is not None and node.stopping


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
    cluster: ClusterState,
    alive: Collection[int],
    candidates: Collection[int],
    receivers: Collection[int],
    num_partitions: int,
) -> dict[int, int]:
    """Which node claims each free partition: the one it is meant for, else one with the fewest.

    `candidates` are those that are ready; if none is, all that stay.
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
    """The moves that bring the shares nearer to being even; the lowest owner decides them."""
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
    """The moves by which a node that stops gives all it owns to those with the fewest.

    What an operator, or the evening out of shares, means for a node that can take it goes there.
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
    """The partitions of each owner that may be moved, the last one first, and how many are moving.

    None while some partition has no owner that lives, or is an operator's: it is claimed first.
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
            # It waits for a node that is away: a move to another one takes that back.
            waiting.setdefault(state.owner, []).append(number)
    owners = plain.keys() | waiting.keys()
    return {each: waiting.get(each, []) + plain.get(each, []) for each in owners}, under_way


def lease_app_id(node_id: int) -> str:
    """The transaction whose version is when a node last said that it is alive, ms."""
    return f"coordinator-lease-{node_id}"


def named(partitions: Collection[int]) -> str:
    """Return partitions in words, as ranges: "0-3, 7"."""
    parts: list[list[int]] = []
    for number in sorted(partitions):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
