"""Whether another process runs the same node, which a start of that node would end.

A start fences off every earlier one, because a node that was killed is started again. A second
process that was given a number by mistake would so end a coordinator that works. Therefore the
node's lease is looked at when the process starts, and again when the start is decided, which is
seconds later because a JVM starts in between. A lease that has moved has a holder that is alive.
If it has not moved the start goes on at once: nobody waits for a lease to end.

In Kafka the controller refuses a broker whose number is registered with a session that is valid
(KIP-631, ClusterControlManager.registerBroker, DUPLICATE_BROKER_REGISTRATION). A broker that was
killed waits until its old session ends.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.coordinator.ownership import NO_EPOCH, lease_app_id
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.patience import Patience
from group_coordinator.pipeline.errors import Failure, address
from group_coordinator.pipeline.ownership.decision_log import DECISIONS
from group_coordinator.pipeline.tables.store import check_whole_table, has_table, table_uri
from group_coordinator.schemas.tables import COORDINATORS

if TYPE_CHECKING:
    from group_coordinator.coordinator.ownership import NodeState

NO_LEASE = -1


class NodeRuns(Failure):
    """Another process runs the node; the message names it, and says what to do."""


class SeenLease(Struct, frozen=True):
    """What a look found: a node's lease, and the epoch of the last decision of all nodes."""

    lease: int = NO_LEASE
    epoch: int = NO_EPOCH


def see_lease(root: str, node_id: int, timeout_ms: int) -> SeenLease:
    """Look at a node's lease; what fails is tried again for `timeout_ms`.

    Raises CommitTimeoutError then, and TornRoot for a table that a loss of power left torn.
    """
    check_whole_table(root, COORDINATORS)
    look = partial(_see, root, node_id)
    return Patience(timeout_ms).until_done(f"look at the lease of node {node_id}", look)


def _see(root: str, node_id: int) -> SeenLease:
    if not has_table(root, COORDINATORS):
        return SeenLease()
    table = Appender(table_uri(root, COORDINATORS))
    return SeenLease(table.last_version(lease_app_id(node_id)), table.last_version(DECISIONS))


def is_alive(seen: SeenLease, node: NodeState | None, lease: int) -> bool:
    """Whether a process of the node is alive: it renewed its lease since a look, or started.

    `node` and `lease` are those of now. One that has said that it stopped is not alive.
    """
    if node is None or node.stopped:
        return False
    return lease != seen.lease or node.epoch > seen.epoch


def check_alone(seen: SeenLease, node: NodeState | None, lease: int) -> None:
    """Raise NodeRuns if a process of the node is alive (`is_alive`)."""
    if node is None or not is_alive(seen, node, lease):
        return
    started = datetime.fromtimestamp(node.started_at / 1000, UTC).replace(tzinfo=None)
    raise NodeRuns(
        f"node {node.node_id} runs already, at {address(node.host, node.port)} since "
        f"{started.isoformat(' ', 'seconds')} UTC"
        + (f" as {node.process}" if node.process else "")
        + ", and has just renewed its lease; give this one a --node-id of its own, or end that one "
        "by --take-over"
    )
