"""Fencing off earlier starts of a node at every table that coordinators write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta.appender import raise_epoch
from group_coordinator.pipeline.delta.epoch import Epoch, FencedError
from group_coordinator.pipeline.tables.store import WRITTEN, table_uri

if TYPE_CHECKING:
    from collections.abc import Iterable

    from group_coordinator.coordinator.ownership import ClusterState


def fence(root: str, epoch: Epoch) -> None:
    """Fence off the earlier starts of a node at every table that coordinators write.

    Raises FencedError if the node has started later than this epoch.
    """
    for table in WRITTEN:
        raise_epoch(table_uri(root, table), epoch)


def fence_dead(root: str, cluster: ClusterState, node_ids: Iterable[int]) -> bool:
    """Fence off nodes that are dead by this cluster state; False if one started again since."""
    try:
        for node_id in node_ids:
            fence(root, Epoch(node_id, cluster.epoch + 1))
    except FencedError:
        return False
    return True
