"""Handles of sent records, their metadata, and the errors of records that are not written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from group_coordinator.coordinator.producer.record_accumulator import RecordBatch

log = logging.getLogger(__name__)


class RecordTooLarge(Failure):
    """A record larger than `max.request.size`, `buffer.memory` or its topic's max.message.bytes."""


class RecordRefused(Failure):
    """A record with a timestamp that its topic does not accept; the message has the timestamp."""


class NotProducible(Failure):
    """A topic to which producers cannot write: a user's table, or a name without a table."""


class RecordMetadata(Struct, frozen=True):
    """The topic, partition and offset of a written record, and its timestamp, ms."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class WrittenRange(Struct, frozen=True):
    """The place of written rows: `count` records of one partition from `base_offset`."""

    topic: str
    partition: int
    base_offset: int
    count: int


class BatchOutcome(Struct, frozen=True):
    """The base offset of a written batch, and the errors of its invalid records.

    `append_time` (ms) is the timestamp of all its records, or None if they keep theirs. `refused`
    has the errors by index in the batch; the other records are written.
    """

    topic: str
    base_offset: int
    append_time: int | None = None
    refused: dict[int, Failure] = {}

    def metadata_of(self, batch: RecordBatch, index: int) -> RecordMetadata:
        """Return the metadata of a record of the batch. Raises the error of an invalid record."""
        if index in self.refused:
            raise self.refused[index]
        offset = (
            self.base_offset + index - sum(refused_index < index for refused_index in self.refused)
        )
        at = batch.timestamps[index] if self.append_time is None else self.append_time
        return RecordMetadata(self.topic, batch.partition, offset, at)


class SentRecord(Struct, frozen=True, gc=False):
    """A handle of a sent record: its batch and its index in the batch."""

    batch: Any
    index: int

    def done(self) -> bool:
        """Return whether the record is written or has failed."""
        return bool(self.batch.delivery.done())

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait until the record is in the topic's table; return its metadata.

        Raises TimeoutError after `timeout_s`. Raises the error of a record that is not written:
        DeliveryFailed, DeliveryTimeout, ProducerClosed, RecordTooLarge, RecordRefused,
        UnknownTopicOrPartitionError, TopicAuthorizationError or NotProducible.
        """
        outcome: BatchOutcome = self.batch.delivery.result(timeout_s)
        return outcome.metadata_of(self.batch, self.index)

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait as `result` does; return the error that it would raise, or None.

        Raises TimeoutError after `timeout_s`.
        """
        error: BaseException | None = self.batch.delivery.exception(timeout_s)
        if error is not None:
            return error
        refused: dict[int, Failure] = self.batch.delivery.result().refused
        return refused.get(self.index)


class SentTable(Struct, frozen=True):
    """A handle of the sent rows of a table: one batch per partition and commit."""

    batches: tuple[Any, ...]

    def done(self) -> bool:
        """Return whether all rows are written or have failed."""
        return all(batch.delivery.done() for batch in self.batches)

    def result(self, timeout_s: float | None = None) -> list[WrittenRange]:
        """Wait until all rows are in the topic's table; return the range of each batch.

        `timeout_s` applies to each batch. Raises the error of the first batch that is not written
        or has an invalid record, as `SentRecord.result` does. Other batches may be written.
        """
        ranges: list[WrittenRange] = []
        for batch in self.batches:
            outcome: BatchOutcome = batch.delivery.result(timeout_s)
            for error in outcome.refused.values():
                raise error
            where = (outcome.topic, batch.partition, outcome.base_offset)
            ranges.append(WrittenRange(*where, len(batch)))
        return ranges


# A callback, called with a record's metadata and None, or with None and its error.
OnDelivery = Callable[["RecordMetadata | None", "BaseException | None"], None]


class BatchDelivery(Future[BatchOutcome]):
    """The future outcome of a batch. It cannot be cancelled, because the batch is written."""

    def cancel(self) -> bool:
        """Do nothing; return False."""
        return False


def complete_batch(batch: RecordBatch, outcome: BatchOutcome | Exception) -> None:
    """Complete a batch with its outcome and call its callbacks, unless it is complete."""
    if batch.delivery.done():
        return
    if isinstance(outcome, BatchOutcome):
        batch.delivery.set_result(outcome)
    else:
        batch.delivery.set_exception(outcome)
    for index, callback in batch.callbacks:
        try:
            if isinstance(outcome, BatchOutcome) and index not in outcome.refused:
                callback(outcome.metadata_of(batch, index), None)
            elif isinstance(outcome, BatchOutcome):
                callback(None, outcome.refused[index])
            else:
                callback(None, outcome)
        # An exception in one callback must not prevent the other callbacks.
        except Exception:
            log.exception("a callback of a record failed")
