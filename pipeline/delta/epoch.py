"""Epochs: they decide which start of a writer may still write.

Every start of a node gets a higher number. Each table that nodes write records the latest number of
every node, and a start with an earlier number is refused. Kafka fences a coordinator by its leader
epoch in the same way.
"""

from __future__ import annotations

import msgspec

from group_coordinator.pipeline.errors import Failure


class Epoch(msgspec.Struct, frozen=True):
    """One start of a node: the node, and the number of this start.

    A table records a node's latest epoch as the version of a transaction identifier.
    """

    node_id: int
    number: int

    @property
    def app_id(self) -> str:
        """The transaction identifier that has the node's latest epoch as its version."""
        return f"coordinator-epoch-{self.node_id}"

    def check(self, table: str, latest: int | None) -> None:
        """Raise FencedError if `latest`, the epoch that the table records, is a later one."""
        if latest is not None and latest > self.number:
            raise FencedError(table, self, latest)


class FencedError(Failure):
    """A later start of the node has taken over: this start may not write any more."""

    def __init__(self, table: str, mine: Epoch, latest: int) -> None:
        super().__init__(
            f"fenced: the coordinator of epoch {latest} has taken over from node {mine.node_id}; "
            f"this one, of epoch {mine.number}, writes nothing more to {table}"
        )
