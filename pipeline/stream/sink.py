"""Writing a batch to its tables: records, then events, rejected requests and responses.

The batch's frame is collected by exactly one action: a second action would run the stateful
function again, and an action that does not read every row would leave state uncommitted. Then each
table gets one commit, in an order that is safe to interrupt: a response is never visible before the
records it depends on. Every commit carries (query, batch), so a batch that is run again writes only
what is still missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from coordinator.group.batch import GroupOutput
from pipeline.clock import clock_ms
from pipeline.delta.epoch import Epoch
from pipeline.delta.open import open_appender
from pipeline.stream.stateful import TOPICS_PROPERTY
from pipeline.tables.offsets_log import OffsetsLog
from pipeline.tables.store import WRITTEN, open_table, table_uri
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
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.settings import CoordinatorSettings
    from pipeline.stream.batch_topics import BatchTopics
    from schemas.records import Record

log = logging.getLogger(__name__)

_decode = msgspec.msgpack.Decoder(GroupOutput).decode


class Sink:
    """The function given to foreachBatch; keeps the offsets log's positions between batches."""

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
        """Write one batch. A failure ends the query; the next start runs the batch again."""
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
        if self._epoch is not None:
            self._epoch.check(RESPONSES.name, appender.last_version(self._epoch.app_id))

    def write(
        self,
        outputs: Sequence[GroupOutput],
        app_id: str,
        batch_id: int,
        spark: SparkSession | None = None,
    ) -> None:
        """Write the outputs of the groups; a table that has this batch already is left as it is.

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
        if self._epoch is not None:
            self._epoch.check(table.name, appender.last_version(self._epoch.app_id))
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
