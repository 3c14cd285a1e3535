"""Records of one partition in one commit: their validation and their sequences.

Source: Apache Kafka, LogValidator (validation) and KIP-98 (sequences).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from group_coordinator.pipeline.client.record_columns import sizes_of
from group_coordinator.pipeline.client.sent_records import RecordRefused, RecordTooLarge
from group_coordinator.pipeline.topics import (
    BatchRefused,
    NewBatch,
    check_size,
    check_times,
    joined,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.coordinator.producer.record_accumulator import RecordBatch
    from group_coordinator.pipeline.errors import Failure
    from group_coordinator.pipeline.topics import TopicConfig


_LAST_SEQUENCE = 2**31 - 1


class Range(Struct):
    """Batches of one partition in one commit.

    `refused` has, for each batch, the errors of its invalid records by index. `appended` has the
    valid records of all batches.
    """

    batches: list[RecordBatch]
    refused: list[dict[int, Failure]]
    appended: NewBatch


class Sequences:
    """A producer id for one topic, and the next sequence of each partition.

    If `new_producer_id` is None, the producer is not idempotent, and its records have no sequences.
    """

    def __init__(self, new_producer_id: Callable[[], int] | None) -> None:
        self._new_producer_id = new_producer_id
        self.begin_anew()

    def begin_anew(self) -> None:
        """Use a new producer id from now on, because the log's state of the old one is unknown."""
        self._producer_id: int | None = None
        self._next: dict[int, int] = {}

    def number(self, appended: NewBatch) -> None:
        """Set the producer id, epoch and sequences of `appended`, if the producer is idempotent.

        Raises the errors of `new_producer_id`.
        """
        if self._new_producer_id is None:
            return
        if self._producer_id is None:
            self._producer_id = self._new_producer_id()
        appended.producer_id, appended.producer_epoch = self._producer_id, 0
        appended.first_sequence = self._next.get(appended.partition, 0)

    def written(self, appended: NewBatch) -> None:
        """Advance the partition's next sequence, because `appended` is in the log."""
        if self._producer_id is not None:
            self._next[appended.partition] = (appended.last_sequence + 1) & _LAST_SEQUENCE


def range_of(batches: list[RecordBatch], config: TopicConfig, now_ms: int) -> Range:
    """Join the batches of one partition into one range, without the invalid records.

    The topic's max.message.bytes limits each record, not the batch: the valid records of a batch
    are still written. `now_ms` is the wall clock time, ms.
    """
    refused = [_refused(batch, config, now_ms) for batch in batches]
    kept = [_kept(*each) for each in zip(batches, refused, strict=True)]
    return Range(batches, refused, joined(kept))


def _refused(batch: RecordBatch, config: TopicConfig, now_ms: int) -> dict[int, Failure]:
    """Return the errors of a batch's invalid records, by index."""
    refused: dict[int, Failure] = {}
    if batch.largest > config.max_message_bytes:
        for place, size in enumerate(sizes_of(batch.keys, batch.values, batch.headers)):
            try:
                check_size(size, config)
            except BatchRefused as error:
                refused[place] = RecordTooLarge(str(error))
    times = batch.timestamps
    if isinstance(times, list):
        times = pa.array(times, pa.int64())
    span = pc.min_max(times).as_py()
    try:
        check_times(span["min"], span["max"], config, now_ms)
    except BatchRefused:
        for place, at in enumerate(times.to_pylist()):
            try:
                check_times(at, at, config, now_ms)
            except BatchRefused as error:
                refused.setdefault(place, RecordRefused(str(error)))
    return refused


def _kept(batch: RecordBatch, refused: dict[int, Failure]) -> NewBatch:
    """Return the valid records of a batch."""
    columns = (batch.keys, batch.values, batch.timestamps, batch.headers)
    if refused:
        places = [place for place in range(len(batch)) if place not in refused]
        columns = tuple(_at(column, places) for column in columns)
    return NewBatch(batch.partition, *columns)


def _at(column: Any, places: list[int]) -> Any:
    if column is None:
        return None
    if isinstance(column, list):
        return [column[place] for place in places]
    return column.take(pa.array(places, pa.int64()))
