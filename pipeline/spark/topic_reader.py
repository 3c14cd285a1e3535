"""Reading of a topic by Spark, as a batch and as a stream, with the columns of the Kafka source.

The driver plans ranges of offsets, and executors read them with `pipeline.topics`, as gateways and
consumers do. Only the driver indexes new rows of a user's table.

Spark runs the driver's part in separate Python processes next to the driver, and pickles a
reader for the executors. So a reader has only its options until one of its methods is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from group_coordinator.pipeline import spark
from group_coordinator.pipeline.spark.topic_offsets import (
    InvalidReadOption,
    ReadOptions,
    TopicBounds,
    TopicOffsets,
    decode_topic_offsets,
    known_offsets,
    limit_offsets,
    log_shortened,
    parse_read_options,
    resolve_offsets,
    split_range,
    topic_replaced,
)
from group_coordinator.pipeline.spark.topic_ranges import TopicLog, TopicRange, lose, open_log

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
# The columns of Spark's Kafka source with `includeHeaders`, and of a topic's own table.
READ_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(_HEADER)),
    ]
)
# How long the last batch of an AvailableNow query waits for the commit of its progress, s.
_FLUSH_S = 10.0


def read_options(options: Mapping[str, str], schema: StructType, *, is_stream: bool) -> ReadOptions:
    """Parse the options of a query that reads the columns `schema`. Raises InvalidReadOption."""
    if schema.simpleString() != READ_SCHEMA.simpleString():
        raise InvalidReadOption(
            f"the columns of a topic are {READ_SCHEMA.simpleString()}: remove .schema(...), and "
            "select or cast columns of the result"
        )
    return parse_read_options(options, is_stream=is_stream)


class _RangeReader:
    """The part of both readers that runs in executors."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range of offsets."""
        # Without ranges, Spark creates this partition itself.
        if not isinstance(partition, TopicRange):
            return iter(())
        options = self._options
        opened = open_log(options.root, options.topic, False)
        return opened.read(partition, options.fail_on_data_loss)

    def _log(self) -> TopicLog:
        return open_log(self._options.root, self._options.topic, True)

    def _start(self) -> tuple[TopicOffsets, TopicBounds]:
        """Return the position of `startingOffsets`, and the bounds of the topic."""
        options, topic_log = self._options, self._log()
        bounds = topic_log.bounds(tries_starts=options.starts_at_log_start)
        topic_log.check_follows()
        return resolve_offsets("startingOffsets", options.starting, bounds), bounds

    def _ranges(self, starts: dict[int, int], end: TopicOffsets) -> list[InputPartition]:
        """Return the ranges of a batch, split so that no task reads too much."""
        most = self._options.max_records_per_partition
        return [
            TopicRange(end.topic_id, number, *part)
            for number, last in end.offsets.items()
            for part in split_range(starts[number], last, most)
        ]


class TopicBatchReader(_RangeReader, DataSourceReader):
    """A reader of the records that a topic has when Spark plans the query."""

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of offsets to read.

        Raises InvalidReadOption, RecordsLost, and the errors of `TopicLog.bounds`. Raises
        CannotFollow if later records of the topic cannot be found.
        """
        start, bounds = self._start()
        end = resolve_offsets("endingOffsets", self._options.ending, bounds)
        for number, offset in start.offsets.items():
            if offset > end.offsets[number]:
                raise InvalidReadOption(
                    f"partition {number} of topic {bounds.topic!r}: startingOffsets has {offset}, "
                    f"which is after endingOffsets, {end.offsets[number]}"
                )
        return self._ranges(start.offsets, end)


class TopicStreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of a topic in micro-batches of fixed offsets, so that a batch can be run again."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._newest: TopicOffsets | None = None
        # The end of an AvailableNow query.
        self._target: TopicOffsets | None = None
        self._commits: spark.ProgressCommits | None = None
        self._committed: TopicOffsets | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the position at which a new query begins.

        Raises InvalidReadOption, RecordsLost, and the errors of `TopicLog.bounds`. Raises
        CannotFollow if later records of the topic cannot be found.
        """
        return self._start()[0].to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of `maxOffsetsPerTrigger`."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch. All records before `start` are processed.

        Raises RecordsLost for a topic that was created again or lost records at its end, and the
        errors of `TopicLog.bounds`. Raises CannotFollow once the records before the table's change
        were read.
        """
        position = self._decode(start)
        end = self._target or self._poll()
        starts = self._starts(position, end)
        offsets = end.offsets
        if isinstance(limit, ReadMaxRows):
            offsets = limit_offsets(starts, offsets, limit.max_rows)
        new = TopicOffsets(end.topic, end.topic_id, offsets)
        is_last = new == position
        self._commit(position, waits=is_last and self._target is not None)
        if is_last:
            self._log().check_follows()
        return new.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the log ends as of the last `latestOffset`, for the progress of the query."""
        return None if self._newest is None else self._newest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at the present log ends."""
        self._target = self._poll()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of a batch; the same ones if the batch is run again."""
        last = self._decode(end)
        return self._ranges(known_offsets(self._decode(start), last), last)

    def stop(self) -> None:
        """Commit the progress that is not committed yet."""
        if self._commits is not None:
            self._commits.close(_FLUSH_S)

    def _decode(self, stored: dict[str, Any]) -> TopicOffsets:
        """Return a position that Spark stored. Raises InvalidReadOption for another topic."""
        position = decode_topic_offsets(stored)
        if position.topic != self._options.topic:
            raise InvalidReadOption(
                f"the streaming checkpoint is that of topic {position.topic!r}: a query of topic "
                f"{self._options.topic!r} needs another checkpointLocation"
            )
        return position

    def _poll(self) -> TopicOffsets:
        self._newest = self._log().bounds().end()
        return self._newest

    def _starts(self, position: TopicOffsets, end: TopicOffsets) -> dict[int, int]:
        """Return the offset at which each partition's next records begin. Raises RecordsLost."""
        fails = self._options.fail_on_data_loss
        if (replaced := topic_replaced(position, end.topic_id)) is not None:
            lose(replaced, fails)
        starts = known_offsets(position, end)
        for number, offset in starts.items():
            if offset > end.offsets[number]:
                lose(log_shortened(end.topic, number, end.offsets[number], offset), fails)
        return starts

    def _commit(self, position: TopicOffsets, waits: bool) -> None:
        """Commit a position for the group of `groupIdForProgress`, if it is a new one."""
        options = self._options
        if options.group_id is None or position == self._committed:
            return
        if self._commits is None:
            # Imported at its first use, because executors do not need it.
            self._commits = spark.ProgressCommits(options.root, options.group_id)
        self._committed = position
        self._commits.submit(position)
        if waits:
            self._commits.flush(_FLUSH_S)
