"""What a producer of records tells of them: where they are, or why they are not written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from group_coordinator.coordinator.producer.accumulator import RecordBatch

log = logging.getLogger(__name__)


class RecordTooLarge(Failure):
    """A record larger than `max.request.size`, `buffer.memory` or its topic's max.message.bytes."""


class RecordRefused(Failure):
    """A record that its topic does not take: its time is too far ahead; the message says which."""


class NotProducible(Failure):
    """A topic that takes no records from producers: a user's table, or a name without a table."""


class RecordMetadata(Struct, frozen=True):
    """Where a record is: its topic, partition and offset, and its timestamp, ms."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class WrittenRange(Struct, frozen=True):
    """Where rows of a table are: `count` records of one partition, from an offset on."""

    topic: str
    partition: int
    base_offset: int
    count: int


class BatchOutcome(Struct, frozen=True):
    """Where a batch is; `append_time`, ms, if that is its records' timestamp.

    `refused` are records that are not written, by their places, while the others are.
    """

    topic: str
    base_offset: int
    append_time: int | None = None
    refused: dict[int, Failure] = {}

    def of(self, batch: RecordBatch, place: int) -> RecordMetadata:
        """Return where a record is. Raises what it was refused for."""
        if place in self.refused:
            raise self.refused[place]
        offset = self.base_offset + place - sum(each < place for each in self.refused)
        at = batch.timestamps[place] if self.append_time is None else self.append_time
        return RecordMetadata(self.topic, batch.partition, offset, at)


class SentRecord(Struct, frozen=True, gc=False):
    """A record that was sent. It shares its batch's outcome."""

    batch: Any
    place: int

    def done(self) -> bool:
        """Whether the record is written, or given up."""
        return bool(self.batch.delivery.done())

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait until the record is in the topic's table; return where.

        Raises TimeoutError after `timeout_s`, else why the record is not written: DeliveryFailed,
        DeliveryTimeout, ProducerClosed, RecordTooLarge, UnknownTopicOrPartitionError,
        TopicAuthorizationError, NotProducible.
        """
        outcome: BatchOutcome = self.batch.delivery.result(timeout_s)
        return outcome.of(self.batch, self.place)

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait as `result` does; return what that raises but for TimeoutError, None if nothing."""
        error: BaseException | None = self.batch.delivery.exception(timeout_s)
        if error is not None:
            return error
        refused: dict[int, Failure] = self.batch.delivery.result().refused
        return refused.get(self.place)


class SentTable(Struct, frozen=True):
    """The rows of a table that were sent: a batch for each partition and commit."""

    batches: tuple[Any, ...]

    def done(self) -> bool:
        """Whether all rows are written, or given up."""
        return all(batch.delivery.done() for batch in self.batches)

    def result(self, timeout_s: float | None = None) -> list[WrittenRange]:
        """Wait until all rows are in the topic's table; return where, in the order of the rows.

        `timeout_s` is for each batch. Raises what `SentRecord.result` raises of the first batch
        that is not written; others may be.
        """
        found: list[WrittenRange] = []
        for batch in self.batches:
            outcome: BatchOutcome = batch.delivery.result(timeout_s)
            for error in outcome.refused.values():
                raise error
            where = (outcome.topic, batch.partition, outcome.base_offset)
            found.append(WrittenRange(*where, len(batch)))
        return found


# Is called with where a record is and None, or with None and why it is not written.
OnDelivery = Callable[["RecordMetadata | None", "BaseException | None"], None]


class BatchDelivery(Future[BatchOutcome]):
    """A batch's outcome. It cannot be cancelled: a record is written with its batch."""

    def cancel(self) -> bool:
        """Do nothing; return False."""
        return False


def tell(batch: RecordBatch, outcome: BatchOutcome | Exception) -> None:
    """Tell a batch of its outcome, unless it was told, and call its callbacks."""
    if batch.delivery.done():
        return
    if isinstance(outcome, BatchOutcome):
        batch.delivery.set_result(outcome)
    else:
        batch.delivery.set_exception(outcome)
    for place, callback in batch.callbacks:
        try:
            if isinstance(outcome, BatchOutcome) and place not in outcome.refused:
                callback(outcome.of(batch, place), None)
            elif isinstance(outcome, BatchOutcome):
                callback(None, outcome.refused[place])
            else:
                callback(None, outcome)
        # One callback must not keep the others from being called.
        except Exception:
            log.exception("a callback of a record failed")
