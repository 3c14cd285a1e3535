"""Fencing of a node's earlier starts in every table that coordinators write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta import Epoch, FencedError, raise_epoch
from group_coordinator.pipeline.tables import WRITTEN, table_uri

if TYPE_CHECKING:
    from collections.abc import Iterable

    from group_coordinator.coordinator.ownership import ClusterState


def fence(root: str, epoch: Epoch) -> None:
    """Fence the starts of a node before this epoch, in every table that coordinators write.

    Raises FencedError if a table has a later epoch of the node.
    """
    for table in WRITTEN:
        raise_epoch(table_uri(root, table), epoch)


def fence_dead(root: str, cluster: ClusterState, node_ids: Iterable[int]) -> bool:
    """Fence dead nodes after this cluster state; return False if one has started again since."""
    try:
        for node_id in node_ids:
            fence(root, Epoch(node_id, cluster.epoch + 1))
    except FencedError:
        return False
    return True
