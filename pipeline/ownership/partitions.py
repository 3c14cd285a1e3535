"""Offsets partitions and the coordinators that own them, as operators see and move them.

In a local folder only DuckDB reads the tables, so that `partitions list` starts without Arrow and
delta-rs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import duckdb
from msgspec import Struct, convert

from group_coordinator.coordinator.ownership import (
    CANCELLED,
    MOVE,
    ClusterState,
    NodeState,
    PartitionState,
    fold,
    lease_app_id,
    named,
)
from group_coordinator.pipeline.clock import clock_ms, monotonic, sleep
from group_coordinator.pipeline.delta import is_table, local_folder, read_plain_table
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.interrupt import duckdb_interrupted
from group_coordinator.pipeline.monitor.catalog import LOGS, Catalog
from group_coordinator.schemas.records import CoordinatorEvent
from group_coordinator.schemas.rows import COORDINATORS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from group_coordinator.pipeline.ownership.decision_log import DecisionLog


# A node is taken for dead after so long without a renewal, s: three times lease.ms by default.
_SILENT_S = 30.0


class PartitionRow(Struct, frozen=True):
    """An offsets partition as `partitions list` shows it; `since` is in UTC.

    `node_id` is null without an owner. `to_node` is the target of a move. `alive_ms` is the time
    since the owner's last lease renewal, ms, by the clocks of both machines; null if it has
    stopped.
    """

    partition: int
    node_id: int | None
    host: str | None
    port: int | None
    epoch: int | None
    since: datetime | None
    to_node: int | None
    alive_ms: int | None


def list_partitions(root: str) -> list[PartitionRow]:
    """Return every partition of the cluster state, with its owner.

    Raises Failure if no coordinator has run at the root.
    """
    cluster = _cluster(root)
    leases = _leases(root)
    rows = []
    for number, state in sorted(cluster.partitions.items()):
        if state.owner is None:
            rows.append(PartitionRow(number, None, None, None, None, None, state.to_node, None))
            continue
        node = cluster.nodes[state.owner]
        alive_ms = None if node.stopped else max(0, clock_ms() - leases(node.node_id))
        rows.append(
            PartitionRow(
                number,
                node.node_id,
                node.host,
                node.port,
                state.epoch,
                datetime.fromtimestamp(state.claimed_at / 1000, UTC),
                state.to_node,
                alive_ms,
            )
        )
    return rows


def describe_nodes(root: str) -> list[str]:
    """Return a sentence for each coordinator, and one for the partitions without an owner.

    A coordinator's has its address, state, last lease renewal and partitions. Raises Failure if no
    coordinator has run at the root.
    """
    cluster = _cluster(root)
    leases = _leases(root)
    nodes = sorted(cluster.nodes.items())
    lines = [_of_node(cluster, node, leases(number)) for number, node in nodes]
    free = [number for number, state in cluster.partitions.items() if state.owner is None]
    return lines + ([f"Without an owner: {_partitions(free)}."] if free else [])


def _of_node(cluster: ClusterState, node: NodeState, lease: int) -> str:
    name = f"Node {node.node_id} at {node.host}:{node.port}"
    owned, coming = cluster.owned_by(node.node_id), cluster.meant_for(node.node_id)
    owns = f"owns {_partitions(owned)}"
    if node.stopped:
        return f"{name} has stopped, and {owns}."
    age_s = max(0, clock_ms() - lease) / 1000
    if age_s > _SILENT_S:
        return (
            f"{name} has not renewed its lease for {age_s:.0f} s, and {owns}: it has ended, is "
            "suspended, or its clock is behind. Start a coordinator if it has ended."
        )
    if node.stopping:
        doing = "is handing its partitions over to stop"
    else:
        doing = "answers" if node.ready else "is starting"
    line = f"{name} {doing}, renewed its lease {age_s:.1f} s ago, and {owns}."
    return f"{line} Moving to it: {named(coming)}." if coming else line


def _partitions(numbers: Collection[int]) -> str:
    if not numbers:
        return "no partition"
    return f"{len(numbers)} partition{'s' if len(numbers) > 1 else ''} ({named(numbers)})"


def _cluster(root: str) -> ClusterState:
    """Return the cluster state. Read it before the leases, so that each of its nodes has one."""
    catalog = Catalog(root)
    if not catalog.has_table(LOGS[COORDINATORS.name]):
        raise Failure(f"no coordinator has run at {root}")
    decided = catalog.query(
        "SELECT * REPLACE (epoch_ms(changed_at) AS changed_at) FROM coordinator_events "
        "ORDER BY epoch"
    )
    events = [{**row, "at": row["changed_at"]} for row in decided.as_dicts()]
    return fold(ClusterState(), convert(events, list[CoordinatorEvent]))


def _leases(root: str) -> Callable[[int], int]:
    """Return a function from a node to the time of its last lease renewal, ms; -1 if none.

    The time is by the node's clock. Raises Failure if the table's log cannot be read.
    """
    folder = local_folder(f"{root.rstrip('/')}/{COORDINATORS.name}")
    table = None
    if folder is not None:
        try:
            with duckdb_interrupted():
                table = read_plain_table(folder, lambda sql: duckdb.execute(sql).fetchall())
        except duckdb.Error as error:
            raise Failure(f"the log of {folder} cannot be read: {first_line(error)}") from error
    if table is None:
        return open_decisions(root).lease_of
    transactions = table.transactions
    return lambda node_id: transactions.get(lease_app_id(node_id), -1)


_POLL_S = 0.1
# The node number of an operator's decisions. No node has it.
_OPERATOR = -1


def open_decisions(root: str) -> DecisionLog:
    """Return the decision log of a root. Raises Failure if no coordinator has run there."""
    # Imported only here: it imports Arrow, delta-rs and a store's client.
    from group_coordinator.pipeline.ownership.decision_log import DecisionLog

    if not is_table(f"{root.rstrip('/')}/{COORDINATORS.name}"):
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
