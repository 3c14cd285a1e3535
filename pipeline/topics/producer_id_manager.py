"""Ids of idempotent producers; each is assigned once among all processes of a root.

A process takes a block of ids by being the first to write the block's number, as the version of a
transaction identifier of the table `gateways`. The number is the time, ms, or the one after the
last block's if that is larger. So no id is assigned again after the table was deleted and created
again, or replaced by an older copy. Otherwise a new producer's batches could be dropped as
duplicates of a previous producer with the same id.

Source: Apache Kafka, ProducerIdManager, which also has blocks of 1000 ids.
"""

from __future__ import annotations

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import Appender, CommitStateUnknown
from group_coordinator.pipeline.tables import ensure_table, table_uri
from group_coordinator.schemas.tables import GATEWAYS

_APP_ID = "producer-ids"
_BLOCK = 1_000


class ProducerIdManager:
    """An allocator of producer ids; for one thread at a time."""

    def __init__(self, root: str) -> None:
        ensure_table(root, GATEWAYS)
        self._appender = Appender(table_uri(root, GATEWAYS))
        self._next = self._end = 0

    def next_id(self) -> int:
        """Return an id that no other producer has. Raises OSError, DeltaError and Failure."""
        if self._next == self._end:
            block = self._take_block()
            self._next, self._end = block * _BLOCK, (block + 1) * _BLOCK
        self._next += 1
        return self._next - 1

    def _take_block(self) -> int:
        while True:
            self._appender.forget()
            block = max(clock_ms(), self._appender.last_version(_APP_ID) + 1)
            try:
                if self._appender.append(None, _APP_ID, block):
                    return block
            except CommitStateUnknown:
                # The block may be another process's: leave it, and take the next one.
                continue
