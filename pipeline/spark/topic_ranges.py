"""Reading of ranges of offsets from a topic, with the code that gateways and consumers use."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from group_coordinator.pipeline.clock import sleep
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.spark.topic_offsets import (
    RecordsLost,
    TopicBounds,
    TopicOffsets,
    log_shortened,
    topic_replaced,
)
from group_coordinator.pipeline.topics import (
    CannotFollow,
    OffsetOutOfRange,
    TableTopics,
    UnknownTopicOrPartition,
)
from group_coordinator.schemas.tables import TOPIC_RECORDS

log = logging.getLogger(__name__)

# The most attempts to read what a topic has, and the time between two attempts, s. Source: Spark,
# KafkaOffsetReader (fetchOffset.numRetries, fetchOffset.retryIntervalMs).
_ATTEMPTS = 3
RETRY_S = 1.0
# The most rows and bytes (of keys, values and headers) of an Arrow batch.
_BATCH_ROWS = 10_000
_BATCH_BYTES = 16 << 20
# The cache of one topic in each Python worker, bytes.
_CACHE_BYTES = 64 << 20


@dataclass(frozen=True)
class TopicRange(InputPartition):
    """Offsets `start` to `end` - 1 of one partition, which one task reads."""

    topic_id: str | None
    partition: int
    start: int
    end: int


class TopicLog:
    """The records of one topic of a root; for one thread at a time.

    `writes_index`: whether new rows of a user's table are indexed.
    """

    def __init__(self, root: str, topic: str, writes_index: bool) -> None:
        self._root = root
        self._topic = topic
        self._topics = TableTopics(
            root, [topic], cache_bytes=_CACHE_BYTES, writes_index=writes_index
        )

    def bounds(self, tries_starts: bool = False) -> TopicBounds:
        """Read what the topic has now, and return its log starts and ends.

        `tries_starts`: try to read the first record of each partition of a user's table, because
        only such a read finds that files were deleted. A read that fails is tried again. Raises
        UnknownTopicOrPartition, and Failure, OSError or DeltaError if the topic cannot be read.
        """
        self._catch_up()
        name = self._topic
        found = self._topics.find(name)
        if found is None:
            raise UnknownTopicOrPartition(
                f"topic {name!r} does not exist in {self._root}: create it with "
                "`group-coordinator topics create`"
            )
        count, definition = found
        if definition is None:
            raise Failure(
                f"topic {name!r} of {self._root} has no table, so none of its records can be read"
            )
        if tries_starts and definition.config is None:
            for number in range(count):
                self._try_start(number)
        starts = {number: self._topics.log_start(name, number) for number in range(count)}
        ends = {number: self._topics.log_end(name, number) for number in range(count)}
        return TopicBounds(name, definition.topic_id, starts, ends)

    def _try_start(self, partition: int) -> None:
        """Read the first record of a partition, which moves a wrong log start."""
        while True:
            start = self._topics.log_start(self._topic, partition)
            try:
                self._topics.read(self._topic, partition, start, 1, 1)
            except OffsetOutOfRange:
                continue
            return

    def check_follows(self) -> None:
        """Raise CannotFollow if later records of the topic cannot be found."""
        self._topics.check_follows(self._topic)

    def read(self, part: TopicRange, fail_on_data_loss: bool) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range, as Arrow batches with the columns of `READ_SCHEMA`.

        Raises RecordsLost for records that do not exist any more. Without `fail_on_data_loss` a
        warning is logged instead, and the next records follow.
        """
        topic_id = self.bounds().topic_id
        replaced = topic_replaced(TopicOffsets(self._topic, part.topic_id, {}), topic_id)
        if replaced is not None:
            lose(replaced, fail_on_data_loss)
            return
        offset = part.start
        while offset < part.end:
            most = min(_BATCH_ROWS, part.end - offset)
            try:
                rows = self._topics.read_rows(
                    self._topic, part.partition, offset, _BATCH_BYTES, most
                )
            except OffsetOutOfRange as error:
                lost = RecordsLost(
                    f"{error}: the query needs the records from {offset} to {part.end - 1}. "
                    "failOnDataLoss=false reads those that are left"
                )
                lose(lost, fail_on_data_loss)
                start = self._topics.log_start(self._topic, part.partition)
                if start <= offset:
                    return
                offset = start
                continue
            # A log may have gaps between its offsets.
            offsets = rows.column("offset").to_numpy()
            rows = rows.slice(0, int(np.searchsorted(offsets, part.end)))
            if not rows.num_rows:
                break
            yield from _batches(rows, part.partition)
            offset = int(offsets[rows.num_rows - 1]) + 1
        end = self._topics.log_end(self._topic, part.partition)
        if offset < part.end and end < part.end:
            lose(log_shortened(self._topic, part.partition, end, part.end), fail_on_data_loss)

    def _catch_up(self) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._topics.catch_up()
                problem = self._topics.problems().get(self._topic)
            except STORE_FAILS as error:
                problem = error
            if problem is None or isinstance(problem, CannotFollow):
                # After a CannotFollow the records before the table's change can be read.
                return
            if attempt == _ATTEMPTS:
                raise problem
            sleep(RETRY_S)


# Python workers run many tasks, one after the other.
@lru_cache(maxsize=8)
def open_log(root: str, topic: str, writes_index: bool) -> TopicLog:
    """Return the log of a topic, which this process keeps for its next calls."""
    return TopicLog(root, topic, writes_index)


def _batches(rows: pa.Table, partition: int) -> list[pa.RecordBatch]:
    numbers = pa.repeat(pa.scalar(partition, pa.int32()), rows.num_rows)
    rows = rows.append_column("partition", numbers).select(TOPIC_RECORDS.schema.names)
    batches: list[pa.RecordBatch] = rows.to_batches()
    return batches


def lose(lost: RecordsLost, fail_on_data_loss: bool) -> None:
    """Raise the error, or log it as a warning without `fail_on_data_loss`."""
    if fail_on_data_loss:
        raise lost
    log.warning("%s", lost)
