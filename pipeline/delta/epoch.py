"""Epochs: which start of a coordinator may write.

Every start of a node is given a higher number, and each table that coordinators write knows the
latest of every node: whoever has an earlier one is refused. Kafka fences a coordinator by its
leader epoch likewise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pipeline.errors import Failure

if TYPE_CHECKING:
    from pipeline.delta.appender import Appender


class Epoch(msgspec.Struct, frozen=True):
    """One start of a coordinator: its node, and the epoch of the root that the start was given.

    The latest epoch of a node is a transaction of each table that coordinators write.
    """

    node_id: int
    number: int

    @property
    def app_id(self) -> str:
        """The transaction whose version is the node's latest epoch."""
        return f"coordinator-epoch-{self.node_id}"


class FencedError(Failure):
    """A later coordinator has taken over: nothing of this one's may be written any more."""

    def __init__(self, table: str, mine: Epoch, latest: int) -> None:
        super().__init__(
            f"fenced: the coordinator of epoch {latest} has taken over from node {mine.node_id}; "
            f"this one, of epoch {mine.number}, writes nothing more to {table}"
        )


def check_epoch(appender: Appender, table: str, epoch: Epoch | None) -> None:
    """Raise FencedError if the table knows a later epoch than this one, if it is one."""
    if epoch is not None and (latest := appender.last_version(epoch.app_id)) > epoch.number:
        raise FencedError(table, epoch, latest)
