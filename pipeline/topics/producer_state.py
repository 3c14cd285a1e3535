"""Producer state of a partition: the last batches of idempotent producers.

It detects duplicates, and batches that do not follow the last one. Source: Apache Kafka,
ProducerStateEntry and ProducerAppendInfo; KIP-98, KIP-360.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable

# The maximum number of batches in flight (ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
BATCHES_KEPT = 5
NO_PRODUCER = -1
_LAST_SEQUENCE = 2**31 - 1


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
        """Return the base offset of the same batch if it is one of the last ones, else None."""
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
