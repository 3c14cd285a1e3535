"""Holding every partition of a root for the time of a change that no coordinator may run beside.

Whoever writes records by hand must be their partitions' owner, as in Kafka only a leader appends.
It takes part in ownership as a node with a negative number, to which partitions come only by moves:
running coordinators unload and release them, dead ones are fenced. Afterwards the partitions go
back, and are loaded with what was written. Killed in between, it is a dead node like any other.
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
from group_coordinator.pipeline.delta.epoch import Epoch, FencedError
from group_coordinator.pipeline.ownership.decision_log import DecisionLog, DecisionsLost
from group_coordinator.pipeline.ownership.fencing import fence, fence_dead
from group_coordinator.pipeline.ownership.lease import LeaseRenewal, Observer
from group_coordinator.pipeline.tables.store import ensure_tables
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
    """Own every partition of the root within the block; yields the epoch to write under.

    Waits for running coordinators to give them up, and for the lease of one that died. Creates the
    tables that are missing. Raises FencedError if somebody else began to hold them.
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
    observer = Observer(HOLDER, lease_ms)
    said = ""
    while len((cluster := decisions.read()).owned_by(HOLDER)) < num_partitions:
        _check(cluster, epoch)
        alive = observer.alive(cluster, decisions.lease_of)
        plan = decide(cluster, HOLDER, alive, num_partitions)
        if plan.claim:
            if not fence_dead(root, cluster, plan.fence):
                continue  # It is asked like any other.
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
    """Release what is still held, each partition to whom it was taken from."""
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
