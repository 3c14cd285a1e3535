"""Writing a batch: records, then what tells of them.

The batch's frame is collected by one action, because every action runs the stateful function again,
and because an action that does not take all of it leaves state uncommitted. Then each table gets
one commit, in an order that is safe to interrupt: a response is never visible before its record.
Every commit carries (query, batch), so a batch that is run again writes what is still missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from deltalake import QueryBuilder

from coordinator.group.batch import GroupOutput
from pipeline.clock import clock_ms
from pipeline.commit import open_appender
from pipeline.epoch import Epoch, check_epoch
from pipeline.stateful import TOPICS_PROPERTY
from pipeline.store import open_table, table_uri
from schemas.tables import (
    GROUP_EVENTS,
    OFFSETS_TOPIC,
    REJECTED_REQUESTS,
    RESPONSES,
    Table,
    to_arrow,
    to_events,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.batch_topics import BatchTopics
    from pipeline.settings import CoordinatorSettings
    from schemas.records import Record

log = logging.getLogger(__name__)

# The tables that a coordinator writes, in the order in which it writes a batch.
WRITTEN = (OFFSETS_TOPIC, GROUP_EVENTS, REJECTED_REQUESTS, RESPONSES)

_decode = msgspec.msgpack.Decoder(GroupOutput).decode


class Sink:
    """The function given to foreachBatch, and the offsets log's positions between batches."""

    def __init__(
        self,
        root: str,
        settings: CoordinatorSettings,
        clock: Callable[[], int] = clock_ms,
        epoch: Epoch | None = None,
        topics: BatchTopics | None = None,
    ) -> None:
        self._root = root
        self._epoch = epoch
        self._topics = topics
        self._spark_rows = settings.append_spark_rows
        self._appenders = {
            table.name: open_appender(table_uri(root, table), epoch) for table in WRITTEN
        }
        self._log = OffsetsLog(
            open_table(root, OFFSETS_TOPIC),
            settings.segment_bytes,
            settings.segment_ms,
            clock,
        )
        self.batches = 0

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one batch. Any failure ends the query; the batch is run again at the restart."""
        spark = frame.sparkSession
        app_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        if app_id is None:
            raise RuntimeError("not in a streaming query: there is no query id to write under")
        if self._topics is not None:
            topics = self._topics.of_batch(app_id, batch_id)
            spark.sparkContext.setLocalProperty(TOPICS_PROPERTY, topics)
        blobs = frame.toArrow().column(0).to_pylist()
        self.write([_decode(blob) for blob in blobs], app_id, batch_id, spark)
        self.batches += 1

    def check_epoch(self) -> None:
        """Raise FencedError if a later coordinator has taken over."""
        appender = self._appenders[RESPONSES.name]
        appender.forget()
        check_epoch(appender, RESPONSES.name, self._epoch)

    def write(
        self,
        outputs: Sequence[GroupOutput],
        app_id: str,
        batch_id: int,
        spark: SparkSession | None = None,
    ) -> None:
        """Write what the groups said; a table that has this batch already is left as it is.

        Without `spark`, batches of any size are written by this process.
        """
        records = [record for output in outputs for record in output.records]
        events = [event for output in outputs for event in output.events]
        rejected = [reject for output in outputs for reject in output.rejected]
        responses = [response for output in outputs for response in output.responses]
        if records:
            self._write_records(records, app_id, batch_id, spark)
        if events:
            self._append(GROUP_EVENTS, to_events(events), app_id, batch_id, spark)
        for table, rows in ((REJECTED_REQUESTS, rejected), (RESPONSES, responses)):
            if rows:
                self._append(table, to_arrow(table, rows), app_id, batch_id, spark)

    def _write_records(
        self, records: list[Record], app_id: str, batch_id: int, spark: SparkSession | None
    ) -> None:
        if self._appenders[OFFSETS_TOPIC.name].last_version(app_id) >= batch_id:
            return
        rows = self._log.place(records)
        if self._append(OFFSETS_TOPIC, rows, app_id, batch_id, spark):
            self._log.advance(rows)

    def _append(
        self, table: Table, rows: pa.Table, app_id: str, batch_id: int, spark: SparkSession | None
    ) -> bool:
        appender = self._appenders[table.name]
        if spark is None or rows.num_rows <= self._spark_rows:
            return appender.append(rows, app_id, batch_id)
        # Spark's writer knows nothing of epochs: it is asked before the commit, not by it.
        appender.forget()
        check_epoch(appender, table.name, self._epoch)
        if appender.last_version(app_id) >= batch_id:
            return False
        append_with_spark(spark, self._root, table, rows, app_id, batch_id)
        appender.forget()
        return True


def append_with_spark(
    spark: SparkSession, root: str, table: Table, rows: pa.Table, app_id: str, version: int
) -> None:
    """Append through Spark's executors; Delta skips a version that is already there."""
    (
        spark.createDataFrame(rows)
        .write.format("delta")
        .mode("append")
        .option("txnAppId", app_id)
        .option("txnVersion", version)
        .save(table_uri(root, table))
    )


class OffsetsLog:
    """Where the next records go: a log offset for each offsets partition, and the active segment.

    A segment is closed, as Kafka's are, when it is full or old; sizes are those of its files for
    what an earlier process wrote, and of the rows in memory for what this one writes.
    """

    def __init__(
        self,
        handle: DeltaTable,
        segment_bytes: int,
        segment_ms: int,
        clock: Callable[[], int],
    ) -> None:
        self._segment_bytes = segment_bytes
        self._segment_ms = segment_ms
        self._clock = clock
        self._next = next_offsets(handle)
        self._segment, self._size, self._since = active_segment(handle)

    def place(self, records: Sequence[Record]) -> pa.Table:
        """Return the records as rows with their log offsets and segment; nothing is taken yet."""
        upcoming: dict[int, int] = {}
        offsets = []
        for record in records:
            partition = record.partition
            offset = upcoming.get(partition)
            if offset is None:
                offset = self._next.get(partition, 0)
            upcoming[partition] = offset + 1
            offsets.append(offset)
        segment = self._segment + 1 if self._is_full() else self._segment
        columns = {
            "log_offset": pa.array(offsets, pa.int64()),
            "segment": pa.array([segment] * len(records), pa.int64()),
        }
        return to_arrow(OFFSETS_TOPIC, records, columns)

    def advance(self, rows: pa.Table) -> None:
        """Take the places of rows that were written."""
        highest = rows.group_by("partition").aggregate([("log_offset", "max")])
        for row in highest.to_pylist():
            self._next[row["partition"]] = row["log_offset_max"] + 1
        segment = rows.column("segment")[0].as_py()
        if segment != self._segment:
            log.info("offsets topic: segment %d closed, %d begun", self._segment, segment)
            self._segment, self._size, self._since = segment, 0, None
        self._size += rows.nbytes
        if self._since is None:
            self._since = self._clock()

    def _is_full(self) -> bool:
        if self._since is None:
            return False
        aged = self._clock() - self._since >= self._segment_ms
        return aged or self._size >= self._segment_bytes


def next_offsets(handle: DeltaTable) -> dict[int, int]:
    """Return the next log offset of each offsets partition that has records.

    Reads two columns of the table, and returns a row for each partition.
    """
    query = "SELECT partition, max(log_offset) + 1 AS next FROM log GROUP BY partition"
    found = pa.table(QueryBuilder().register("log", handle).execute(query).read_all())
    return {row["partition"]: row["next"] for row in found.to_pylist()}


def active_segment(handle: DeltaTable) -> tuple[int, int, int | None]:
    """Return the newest segment, the bytes of its files, and when its first was written, ms.

    Segment 0, no bytes and None for an empty table. Reads the table's log only.
    """
    files = pa.table(handle.get_add_actions(flatten=True))
    if files.num_rows == 0:
        return 0, 0, None
    segments = files.column("partition.segment").to_pylist()
    newest = max(segments)
    mine = files.filter(pa.array([segment == newest for segment in segments]))
    size = sum(mine.column("size_bytes").to_pylist())
    since = min(mine.column("modification_time").cast(pa.int64()).to_pylist())
    return newest, size, since
