"""Ownership of all partitions of a root during a change without running coordinators.

As in Kafka only a partition's leader appends to it, a process that writes records itself must own
their partitions. It is a node with a negative number, which gets partitions only by moves. Running
coordinators unload and release their partitions; dead ones are fenced.

Afterwards the partitions return to their former owners, which load the new records. If the process
is killed, it is handled like any other dead node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from group_coordinator.coordinator.ownership import (
    CANCELLED,
    CLAIMED,
    MOVE,
    RELEASED,
    STARTED,
    STOPPED,
    ClusterState,
    decide,
)
from group_coordinator.pipeline.clock import clock_ms, sleep
from group_coordinator.pipeline.delta import Epoch, FencedError
from group_coordinator.pipeline.ownership.decision_log import DecisionLog, DecisionsLost
from group_coordinator.pipeline.ownership.fencing import fence, fence_dead
from group_coordinator.pipeline.ownership.lease import LeaseObserver, LeaseRenewal
from group_coordinator.pipeline.tables import ensure_tables
from group_coordinator.schemas.records import CoordinatorEvent

HOLDER = -2
_POLL_S = 0.1


@contextmanager
def holding_partitions(
    root: str,
    num_partitions: int,
    lease_ms: int,
    reason: str,
    say: Callable[[str], None] = lambda _text: None,
) -> Iterator[Epoch]:
    """Own every partition of the root within the block; yield the epoch for writes.

    Waits until running coordinators release the partitions, and until the lease of a dead one ends;
    `say` receives a text about each wait. Creates missing tables. Raises FencedError if another
    process began to hold the partitions.
    """
    ensure_tables(root)
    decisions = DecisionLog(root)
    before = decisions.read()
    cluster, _ = decisions.decide_until(
        lambda _: [
            _event(STARTED, reason=reason),
            *(_event(MOVE, p, HOLDER, reason) for p in range(num_partitions)),
        ]
    )
    epoch = Epoch(HOLDER, cluster.epoch)
    fence(root, epoch)
    lease = LeaseRenewal(root, HOLDER, lease_ms)
    try:
        _take_all(root, decisions, epoch, num_partitions, lease_ms, say)
        yield epoch
    finally:
        decisions.decide_until(lambda cluster: _given_back(cluster, before, epoch))
        lease.stop()


def _take_all(
    root: str,
    decisions: DecisionLog,
    epoch: Epoch,
    num_partitions: int,
    lease_ms: int,
    say: Callable[[str], None],
) -> None:
    observer = LeaseObserver(HOLDER, lease_ms)
    said = ""
    while len((cluster := decisions.read()).owned_by(HOLDER)) < num_partitions:
        _check(cluster, epoch)
        alive = observer.alive(cluster, decisions.lease_of)
        plan = decide(cluster, HOLDER, alive, num_partitions)
        if plan.claim:
            if not fence_dead(root, cluster, plan.fence):
                continue  # A dead node started again: wait until it releases its partitions.
            decisions.decide(cluster, [_event(CLAIMED, p) for p in plan.claim])
            continue
        owners = sorted({s.owner for s in cluster.partitions.values() if s.owner is not None})
        text = f"waiting for node {', '.join(str(n) for n in owners if n != HOLDER)}"
        if text != said:
            say(text)
            said = text
        sleep(_POLL_S)


def _given_back(
    cluster: ClusterState, before: ClusterState, epoch: Epoch
) -> list[CoordinatorEvent]:
    """Return the events that release the held partitions to their former owners and stop the node.

    Pending moves to this node are cancelled. Returns none if this process has already stopped or a
    later one exists.
    """
    holder = cluster.nodes.get(HOLDER)
    if holder is None or holder.epoch != epoch.number or holder.stopped:
        return []
    released = [
        _event(RELEASED, p, before.partitions[p].owner if p in before.partitions else None)
        for p in cluster.owned_by(HOLDER)
    ]
    pending = [
        _event(CANCELLED, p)
        for p, state in cluster.partitions.items()
        if state.owner != HOLDER and state.to_node == HOLDER
    ]
    return [*released, *pending, _event(STOPPED)]


def _check(cluster: ClusterState, epoch: Epoch) -> None:
    holder = cluster.nodes.get(HOLDER)
    if holder is None:
        raise DecisionsLost(HOLDER)
    if holder.epoch != epoch.number:
        raise FencedError("any table", epoch, holder.epoch)


def _event(
    what: str, partition: int | None = None, to_node: int | None = None, reason: str | None = None
) -> CoordinatorEvent:
    return CoordinatorEvent(clock_ms(), -1, what, HOLDER, partition, to_node=to_node, reason=reason)
