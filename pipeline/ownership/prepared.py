"""Preparation of a node for the partitions that move to it.

The target of a move reads ahead the data that its claim needs, which may take seconds. Then it
records the epoch of the decisions that it has prepared for, as the version of a transaction of
`coordinators`. Until then the owner keeps the partition. Preparation only shortens the time for
which groups wait: a node may claim partitions without it.

A node first records this before it declares itself ready; before that record, no owner waits for
it. An owner waits at most `MOST_S`, because the target may be dead, hang, or have more to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.coordinator.ownership import ClusterState, PartitionState

MOST_S = 20.0


class Preparations:
    """The partitions that a node keeps until their next owner has prepared."""

    def __init__(self, me: int) -> None:
        self._me = me
        # When each delayed move was first seen, s, by partition and epoch.
        self._since: dict[tuple[int, int], float] = {}

    def held(self, cluster: ClusterState, prepared_by: Callable[[int], int]) -> set[int]:
        """Return the partitions with a next owner that still prepares.

        `prepared_by` returns the last epoch that a node has prepared for.
        """
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
    # Epochs that an earlier process of the node recorded are ignored.
    return node.epoch <= prepared_by(node.node_id) < state.meant_epoch
