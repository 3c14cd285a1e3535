"""Moves of offsets partitions between coordinators, by an operator."""

from __future__ import annotations

from collections.abc import Callable

from group_coordinator.coordinator.ownership import CANCELLED, MOVE, ClusterState, PartitionState
from group_coordinator.pipeline.clock import clock_ms, monotonic, sleep
from group_coordinator.pipeline.delta import is_table
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.tables import table_uri
from group_coordinator.schemas.records import CoordinatorEvent
from group_coordinator.schemas.tables import COORDINATORS

_POLL_S = 0.1
# The node number of an operator's decisions. No node has it.
_OPERATOR = -1


def open_decisions(root: str) -> DecisionLog:
    """Return the decision log of a root. Raises Failure if no coordinator has run there."""
    if not is_table(table_uri(root, COORDINATORS)):
        raise Failure(f"no coordinator has run at {root}")
    return DecisionLog(root)


def move(decisions: DecisionLog, partition: int, to_node: int) -> ClusterState:
    """Decide the move of a partition to a node; return the cluster state with the move.

    The owner keeps the partition until the node is ready, and then for a bounded time until it has
    read ahead (`pipeline.ownership.decision_log`). Raises Failure for an unknown partition or node,
    and for a partition that its owner already unloads.
    """

    def asked(cluster: ClusterState) -> list[CoordinatorEvent]:
        state = _known(cluster, partition)
        if to_node not in cluster.nodes:
            known = ", ".join(map(str, sorted(cluster.nodes)))
            raise Failure(f"node {to_node} has never started on this root; known nodes: {known}")
        if state.unloading:
            raise Failure(f"partition {partition} is already moving to node {state.to_node}")
        if state.owner == to_node and state.to_node is None:
            return []
        return [_event(MOVE, partition, to_node)]

    return decisions.decide_until(asked)[0]


def cancel(decisions: DecisionLog, partition: int) -> None:
    """Cancel the move of a partition.

    Raises Failure if it is unknown, has no move, or is already unloading or released.
    """

    def asked(cluster: ClusterState) -> list[CoordinatorEvent]:
        state = _known(cluster, partition)
        if state.unloading or state.owner is None:
            raise Failure(
                f"too late to cancel: partition {partition} is already moving to node "
                f"{state.to_node}; move it back when that node owns it"
            )
        if state.to_node is None:
            raise Failure(f"partition {partition} has no move to cancel")
        return [_event(CANCELLED, partition)]

    decisions.decide_until(asked)


def await_move(
    decisions: DecisionLog,
    partition: int,
    to_node: int,
    timeout_s: float,
    say: Callable[[str], None] = lambda _text: None,
) -> None:
    """Wait until a node owns a partition; `say` receives a text about each stage of the move.

    Raises Failure if the move is cancelled or takes longer than `timeout_s`.
    """
    limit = monotonic() + timeout_s
    said = ""
    while (state := _known(cluster := decisions.read(), partition)).owner != to_node:
        if state.owner is not None and state.to_node != to_node:
            raise Failure(f"the move of partition {partition} was cancelled")
        text = _stage(cluster, state)
        if text != said:
            say(text)
            said = text
        if monotonic() > limit:
            raise Failure(
                f"node {to_node} does not own partition {partition} after {timeout_s:g} s; "
                "the move continues when both nodes run, or cancel it with --cancel"
            )
        sleep(_POLL_S)


def _stage(cluster: ClusterState, state: PartitionState) -> str:
    if state.owner is None:
        stage = f"released, node {state.to_node} loads it"
    elif state.unloading:
        stage = f"node {state.owner} unloads it"
    else:
        to = None if state.to_node is None else cluster.nodes.get(state.to_node)
        is_ready = to is not None and to.ready and not to.stopping
        until = "has read ahead" if is_ready else "is ready"
        stage = f"node {state.owner} keeps it until node {state.to_node} {until}"
    return f"partition {state.partition}: {stage}"


def _known(cluster: ClusterState, partition: int) -> PartitionState:
    state = cluster.partitions.get(partition)
    if state is None:
        raise Failure(
            f"there is no offsets partition {partition}; the root has {len(cluster.partitions)}"
        )
    return state


def _event(what: str, partition: int, to_node: int | None = None) -> CoordinatorEvent:
    return CoordinatorEvent(
        clock_ms(), -1, what, _OPERATOR, partition, to_node=to_node, reason="by an operator"
    )
