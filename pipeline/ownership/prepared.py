"""Whether the node that a partition is meant for has prepared for it.

A node that is to get partitions reads ahead what their claims will need, which takes seconds where
much is kept, and then says so: a transaction of the `coordinators` table whose version is the epoch
of the decisions that it has prepared for. Their owner keeps the partitions until then, and goes on
deciding for them. Only how long groups wait depends on it: a node claims what it has not prepared
for as well.

A node says so for the first time before it says that it is ready: until then it is not waited for.
No node is waited for longer than `MOST_S`: it may have died within its lease, hang, or have more to
read than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.coordinator.ownership import ClusterState, PartitionState

MOST_S = 20.0


class Preparations:
    """Tells which of its partitions a node holds back, look by look."""

    def __init__(self, me: int) -> None:
        self._me = me
        # The moves that are held back, by partition and epoch, and when each was seen first.
        self._since: dict[tuple[int, int], float] = {}

    def held(self, cluster: ClusterState, prepared_by: Callable[[int], int]) -> set[int]:
        """The partitions whose next owner still prepares; `prepared_by` gives what a node said."""
        now = monotonic()
        self._since = {
            (number, state.meant_epoch): self._since.get((number, state.meant_epoch), now)
            for number, state in cluster.kept_by(self._me).items()
            if _is_awaited(cluster, state, prepared_by)
        }
        return {number for (number, _), since in self._since.items() if now - since < MOST_S}


def _is_awaited(
    cluster: ClusterState, state: PartitionState, prepared_by: Callable[[int], int]
) -> bool:
    node = None if state.to_node is None else cluster.nodes.get(state.to_node)
    if node is None or node.node_id == state.owner:
        return False
    # What an earlier start has said counts for nothing.
    return node.epoch <= prepared_by(node.node_id) < state.meant_epoch
