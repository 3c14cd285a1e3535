"""Fencing of a node's earlier processes, and detection of one that is alive.

A process fences every earlier process of its node, in every table that coordinators write, because
a killed node is started again. So a second process with the same number by mistake would end a
working coordinator.

Therefore a process reads the node's lease when it starts, and again seconds later, when its JVM has
started and it appends its start. If the lease was renewed meanwhile, its holder is alive. Otherwise
the process continues without waiting for the lease to end.

In Kafka the controller refuses a broker if its id is registered with a valid session (KIP-631,
ClusterControlManager.registerBroker, DUPLICATE_BROKER_REGISTRATION), so a killed broker waits until
its old session ends.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.coordinator.ownership import NO_EPOCH, lease_app_id
from group_coordinator.pipeline.delta import Appender, Epoch, FencedError, RetryBudget, raise_epoch
from group_coordinator.pipeline.errors import Failure, address
from group_coordinator.pipeline.ownership.decision_log import DECISIONS
from group_coordinator.pipeline.tables import WRITTEN, check_whole_table, has_table, table_uri
from group_coordinator.schemas.tables import COORDINATORS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from group_coordinator.coordinator.ownership import ClusterState, NodeState


NO_LEASE = -1


class NodeAlreadyRunning(Failure):
    """Another process runs the node. The message names it, and says what to do."""


class ObservedLease(Struct, frozen=True):
    """A node's lease as read once, with the epoch of the newest decision of any node."""

    lease: int = NO_LEASE
    epoch: int = NO_EPOCH


def read_lease(root: str, node_id: int, timeout_ms: int) -> ObservedLease:
    """Read a node's lease; retry failures for `timeout_ms`.

    Raises CommitTimeoutError after that time, and TornRoot if a power cut left the table torn.
    """
    check_whole_table(root, COORDINATORS)
    look = partial(_see, root, node_id)
    return RetryBudget(timeout_ms).run(f"read the lease of node {node_id}", look)


def _see(root: str, node_id: int) -> ObservedLease:
    if not has_table(root, COORDINATORS):
        return ObservedLease()
    table = Appender(table_uri(root, COORDINATORS))
    return ObservedLease(table.last_version(lease_app_id(node_id)), table.last_version(DECISIONS))


def is_alive(seen: ObservedLease, node: NodeState | None, lease: int) -> bool:
    """Return whether a process of the node has renewed its lease or started since `seen`.

    `node` and `lease` are the current ones. A node that has recorded its stop is not alive.
    """
    if node is None or node.stopped:
        return False
    return lease != seen.lease or node.epoch > seen.epoch


def check_not_running(seen: ObservedLease, node: NodeState | None, lease: int) -> None:
    """Raise NodeAlreadyRunning if a process of the node is alive (`is_alive`)."""
    if node is None or not is_alive(seen, node, lease):
        return
    started = datetime.fromtimestamp(node.started_at / 1000, UTC).replace(tzinfo=None)
    raise NodeAlreadyRunning(
        f"node {node.node_id} is already running at {address(node.host, node.port)} since "
        f"{started.isoformat(' ', 'seconds')} UTC"
        + (f" as {node.process}" if node.process else "")
        + " and has just renewed its lease: give this coordinator another --node-id, or end the "
        "other one with --take-over"
    )


def fence(root: str, epoch: Epoch) -> None:
    """Fence a node's processes before this epoch, in every table that coordinators write.

    Raises FencedError if a table has a later epoch of the node.
    """
    for table in WRITTEN:
        raise_epoch(table_uri(root, table), epoch)


def fence_dead(root: str, cluster: ClusterState, node_ids: Iterable[int]) -> bool:
    """Fence the nodes that are dead in `cluster`; return False if one has started since."""
    try:
        for node_id in node_ids:
            fence(root, Epoch(node_id, cluster.epoch + 1))
    except FencedError:
        return False
    return True
