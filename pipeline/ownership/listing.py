"""What an operator sees: offsets partitions and the coordinators that own them.

Read by DuckDB alone where the root is in a local folder: `partitions list` need not wait for Arrow
and delta-rs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import duckdb
from msgspec import Struct, convert

from group_coordinator.coordinator.ownership import (
    ClusterState,
    NodeState,
    fold,
    lease_app_id,
    named,
)
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.plain_table import read_plain_table
from group_coordinator.pipeline.delta.table import local_folder
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.interrupt import duckdb_interrupted
from group_coordinator.pipeline.monitor.catalog import LOGS, Catalog
from group_coordinator.schemas.records import CoordinatorEvent
from group_coordinator.schemas.rows import COORDINATORS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class PartitionRow(Struct, frozen=True):
    """An offsets partition as `partitions list` shows it; `since` in UTC.

    `node_id` null: nobody owns it now. `alive_ms` is how long ago its owner last said that it is
    alive, by the two machines' clocks, null once it has stopped.
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
    """Every partition that was ever claimed, and whose it is. Raises Failure without any."""
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
    """A sentence for each coordinator, and for the partitions that nobody owns.

    A coordinator's sentence tells where it is reached, whether it is alive, and what it owns.
    Raises Failure where no coordinator has run.
    """
    cluster = _cluster(root)
    leases = _leases(root)
    nodes = sorted(cluster.nodes.items())
    lines = [_of_node(cluster, node, leases(number)) for number, node in nodes]
    free = [number for number, state in cluster.partitions.items() if state.owner is None]
    return lines + ([f"Nobody owns {_partitions(free)}."] if free else [])


def _of_node(cluster: ClusterState, node: NodeState, lease: int) -> str:
    name = f"Node {node.node_id} at {node.host}:{node.port}"
    owned, coming = cluster.owned_by(node.node_id), cluster.meant_for(node.node_id)
    owns = f"owns {_partitions(owned)}"
    if node.stopped:
        return f"{name} has stopped, and {owns}."
    if node.stopping:
        doing = "is giving its partitions away to stop"
    else:
        doing = "answers" if node.ready else "is starting"
    age_s = max(0, clock_ms() - lease) / 1000
    line = f"{name} {doing}, said {age_s:.1f} s ago that it is alive, and {owns}."
    return f"{line} On their way to it: {named(coming)}." if coming else line


def _partitions(numbers: Collection[int]) -> str:
    if not numbers:
        return "no partition"
    return f"{len(numbers)} partition{'s' if len(numbers) > 1 else ''} ({named(numbers)})"


def _cluster(root: str) -> ClusterState:
    """The nodes and partitions. To be read before the leases: a known node has a lease."""
    catalog = Catalog(root)
    if not catalog.has_table(LOGS[COORDINATORS.name]):
        raise Failure(f"no coordinator has run at {root}")
    decided = catalog.query(
        'SELECT * REPLACE (epoch_ms("at") AS "at") FROM coordinator_events ORDER BY epoch'
    )
    return fold(ClusterState(), convert(decided.as_dicts(), list[CoordinatorEvent]))


def _leases(root: str) -> Callable[[int], int]:
    """When each node last said that it is alive, by its own clock, ms; -1 never."""
    folder = local_folder(f"{root.rstrip('/')}/{COORDINATORS.name}")
    table = None
    if folder is not None:
        try:
            with duckdb_interrupted():
                table = read_plain_table(folder, lambda sql: duckdb.execute(sql).fetchall())
        except duckdb.Error as error:
            raise Failure(f"the log of {folder} cannot be read: {first_line(error)}") from error
    if table is None:
        # Imported for a root elsewhere: it needs Arrow, delta-rs and a store's client.
        from group_coordinator.pipeline.ownership.decision_log import DecisionLog

        return DecisionLog(root).lease_of
    transactions = table.transactions
    return lambda node_id: transactions.get(lease_app_id(node_id), -1)
