"""Idempotent producers: their ids, and their state in a partition.

The state of a producer is its last batches. It detects duplicates, and batches that do not follow
the last one. Source: Apache Kafka, ProducerStateEntry and ProducerAppendInfo; KIP-98, KIP-360.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import Appender, CommitStateUnknown
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables import ensure_table, table_uri
from group_coordinator.schemas.tables import GATEWAYS

if TYPE_CHECKING:
    from collections.abc import Iterable

# The maximum number of batches in flight (ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
BATCHES_KEPT = 5
NO_PRODUCER = -1
_LAST_SEQUENCE = 2**31 - 1
# The transaction identifier for blocks of producer ids, and the size of a block.
_APP_ID = "producer-ids"
_BLOCK = 1_000


class OutOfOrderSequence(Failure):
    """A batch that does not follow its producer's last one. Kafka's error 45."""


class InvalidProducerEpoch(Failure):
    """A batch with an older epoch than its producer's last one. Kafka's error 47."""


class ProducerBatch(Struct, frozen=True, array_like=True):
    """A batch in the log: its producer, sequence numbers and base offset."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int


class ProducerStateManager:
    """The last batches of each producer of one partition, the oldest first."""

    def __init__(self, known: ProducerStateManager | None = None) -> None:
        """Begin empty, or as a copy-on-write view of `known`, which must not change meanwhile."""
        self._known = known
        self._batches: dict[int, tuple[ProducerBatch, ...]] = {}

    def last_batches(self, producer_id: int) -> tuple[ProducerBatch, ...]:
        """Return a producer's last batches, at most BATCHES_KEPT; () for an unknown producer."""
        found = self._batches.get(producer_id)
        if found is None:
            found = () if self._known is None else self._known.last_batches(producer_id)
        return found

    def add(self, batch: ProducerBatch) -> None:
        """Add a batch of the log; batches come in the order of their offsets."""
        before = self.last_batches(batch.producer_id)
        if before and before[-1].epoch != batch.epoch:
            before = ()
        self._batches[batch.producer_id] = (*before, batch)[-BATCHES_KEPT:]

    def find_duplicate(self, producer_id: int, epoch: int, first: int, last: int) -> int | None:
        """Return the base offset of the same batch; None if it is not among the batches kept."""
        for batch in self.last_batches(producer_id):
            if (batch.epoch, batch.first_sequence, batch.last_sequence) == (epoch, first, last):
                return batch.base_offset
        return None

    def check(self, producer_id: int, epoch: int, first: int) -> None:
        """Raise unless a batch that begins with sequence `first` may be written next.

        Raises InvalidProducerEpoch, OutOfOrderSequence. As in Kafka, an unknown producer may begin
        with any sequence, because retention may have deleted its earlier batches.
        """
        known = self.last_batches(producer_id)
        if not known:
            return
        newest = known[-1]
        if epoch < newest.epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {newest.epoch}, and the batch {epoch}"
            )
        expected = 0
        if epoch == newest.epoch and newest.last_sequence != _LAST_SEQUENCE:
            expected = newest.last_sequence + 1
        if first != expected:
            raise OutOfOrderSequence(
                f"producer {producer_id}, epoch {epoch}: sequence {first} came where {expected} "
                "was to come"
            )


def last_sequence(first: int, count: int) -> int:
    """Return the sequence of a batch's last record; sequences wrap to 0 after 2**31 - 1."""
    return (first + count - 1) & _LAST_SEQUENCE


def retained_batches(batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
    """Return the batches that a file's statistics must have: the last ones of each producer.

    `batches` and the result are in the order of their offsets.
    """
    producers = ProducerStateManager()
    for batch in batches:
        producers.add(batch)
    kept = [batch for known in producers._batches.values() for batch in known]
    return sorted(kept, key=lambda batch: batch.base_offset)


class ProducerIdManager:
    """An allocator of producer ids, each of which one process of a root gets once.

    A process takes a block of ids by being the first to write the block's number, as the version of
    a transaction identifier of the table `gateways`. The number is the time, ms, or the one after
    the last block's if that is larger. So no id is assigned again after the table was deleted, or
    replaced by an older copy: a new producer's batches could be dropped as duplicates of an earlier
    producer. For one thread at a time.

    Source: Apache Kafka, ProducerIdManager, which also has blocks of 1000 ids.
    """

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
