"""A partition's records of one commit: what of its batches the topic takes, and its sequences.

Source of what is refused: Apache Kafka, LogValidator; of sequences: KIP-98.
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

    from group_coordinator.coordinator.producer.accumulator import RecordBatch
    from group_coordinator.pipeline.errors import Failure
    from group_coordinator.pipeline.topics import TopicConfig


_LAST_SEQUENCE = 2**31 - 1


class Range(Struct):
    """Batches of one partition, what is refused of each (by place), and what is appended."""

    batches: list[RecordBatch]
    refused: list[dict[int, Failure]]
    appended: NewBatch


class Sequences:
    """A producer's id for one topic, and the next sequence of each partition.

    `new_producer_id` None: the producer is not idempotent, and what it appends has no sequences.
    """

    def __init__(self, new_producer_id: Callable[[], int] | None) -> None:
        self._new_producer_id = new_producer_id
        self.begin_anew()

    def begin_anew(self) -> None:
        """Go on under another producer id: it is not known what the log knows of this one."""
        self._producer_id: int | None = None
        self._next: dict[int, int] = {}

    def number(self, appended: NewBatch) -> None:
        """Number what is appended. Raises what `new_producer_id` raises."""
        if self._new_producer_id is None:
            return
        if self._producer_id is None:
            self._producer_id = self._new_producer_id()
        appended.producer_id, appended.producer_epoch = self._producer_id, 0
        appended.first_sequence = self._next.get(appended.partition, 0)

    def written(self, appended: NewBatch) -> None:
        """Go on after what is in the log now."""
        if self._producer_id is not None:
            self._next[appended.partition] = (appended.last_sequence + 1) & _LAST_SEQUENCE


def range_of(batches: list[RecordBatch], config: TopicConfig, now_ms: int) -> Range:
    """Make one range of the batches of one partition, without what the topic does not take.

    `now_ms` is the time of day. However large a batch is, its topic takes the records that are not
    too large by themselves: the others of their batch share no fate with those that are.
    """
    refused = [_refused(batch, config, now_ms) for batch in batches]
    kept = [_kept(*each) for each in zip(batches, refused, strict=True)]
    return Range(batches, refused, joined(kept))


def _refused(batch: RecordBatch, config: TopicConfig, now_ms: int) -> dict[int, Failure]:
    """Which records of a batch its topic does not take, by their places."""
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
    """The records of a batch that are taken."""
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
