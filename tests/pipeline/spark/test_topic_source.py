"""A real session reads a topic by `format("group_coordinator")`: as a batch, and as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from group_coordinator.pipeline.admin.changes import delete_topic
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.spark import ProgressCommits, register_data_source
from group_coordinator.pipeline.tables.topic_catalogue import alter_topic
from tests.frames import assert_same_rows
from tests.pipeline.small import SmallCoordinator
from tests.pipeline.topics.logs import appender, batch, make
from tests.pipeline.topics.tables import append, define
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# https://spark.apache.org/docs/latest/streaming/structured-streaming-kafka-integration.html
KAFKA_SOURCE = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)


@pytest.fixture
def topics(spark: SparkSession) -> SparkSession:
    """Return the session, with the data source."""
    register_data_source(spark)
    return spark


@pytest.fixture
def coordinator(root: str) -> Iterator[SmallCoordinator]:
    coordinator = SmallCoordinator(root)
    yield coordinator
    coordinator.stop()


def test_a_batch_has_the_rows_of_the_kafka_source(topics: SparkSession, root: str) -> None:
    writer = appender(make(root))
    given = batch(1, "a", "b")
    given.headers = [(("page", b"/cart"), ("page", None)), ()]
    writer.append([given, batch(0, "c")])
    first = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    written = [
        (b"a", b"a", "t", 1, 0, first, 0, [("page", b"/cart"), ("page", None)]),
        (b"b", b"b", "t", 1, 1, first + timedelta(milliseconds=1), 0, None),
        (b"c", b"c", "t", 0, 0, first, 0, None),
    ]
    reader = topics.read.format("group_coordinator").option("root", root).option("topic", "t")
    rows = reader.load()
    assert_same_rows(rows, topics.createDataFrame(written, KAFKA_SOURCE))
    # Each partition is a task.
    assert rows.rdd.getNumPartitions() == 2


@pytest.mark.full
def test_a_users_table_and_an_empty_topic_are_read(
    topics: SparkSession, root: str, tmp_path: Path
) -> None:
    uri = str(tmp_path / "rows")
    append(uri, range(10))
    define(root, uri, 2)
    reader = topics.read.format("group_coordinator").option("root", root)
    rows = reader.option("topic", "t").load().selectExpr("CAST(value AS STRING)").collect()
    assert sorted(row.value for row in rows) == [f'{{"id":"id-{n}","n":{n}}}' for n in range(10)]
    delete_topic(root, "t")
    make(root)
    assert reader.option("topic", "t").load().count() == 0
    with pytest.raises(PySparkException, match="topic 'other' does not exist"):
        reader.option("topic", "other").load().count()
    with pytest.raises(PySparkException, match="has no option 'startingoffset'"):
        reader.option("startingOffset", "earliest").load().count()


def drain(spark: SparkSession, root: str, folder: Path, **options: str) -> list[list[str]]:
    """Run a query until it has read everything; return the values of each batch."""
    taken: list[list[str]] = []

    def take(rows: Any, _: int) -> None:
        found = rows.selectExpr("CAST(value AS STRING)", "partition", "offset").collect()
        taken.append([row.value for row in sorted(found, key=lambda row: row[1:])])

    reader = spark.readStream.format("group_coordinator").option("root", root).option("topic", "t")
    rows = reader.options(**{"startingOffsets": "earliest", **options}).load()
    query = rows.writeStream.foreachBatch(take).trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
    return taken


def committed(root: str, group: str) -> dict[int, int]:
    asked = 'SELECT "partition", committed_offset FROM committed_offsets WHERE group_id = ?'
    return dict(Catalog(root).query(asked, [group]).rows)


@pytest.mark.full
@pytest.mark.usefixtures("coordinator")
def test_a_stream_goes_on_after_a_restart_and_its_group_has_its_offsets(
    topics: SparkSession, root: str, tmp_path: Path
) -> None:
    writer = appender(make(root, 2))
    writer.append([batch(0, *"abcd"), batch(1, *"ef")])
    options = {"maxOffsetsPerTrigger": "3", "groupIdForProgress": "job"}
    listener = ProgressCommits(root, "listener")
    topics.streams.addListener(listener)
    try:
        assert drain(topics, root, tmp_path, **options) == [["a", "b", "e"], ["c", "d", "f"]]
        # Committed before the query ended.
        assert committed(root, "job") == {0: 4, 1: 2}
        alter_topic(root, "t", 3)
        writer.append([batch(2, "g"), batch(0, "h")])
        assert drain(topics, root, tmp_path, **options) == [["h", "g"]]
        ends = {0: 5, 1: 2, 2: 1}
        assert committed(root, "job") == ends
        wait_until("the listener commits", lambda: committed(root, "listener") == ends, every_s=0.5)
    finally:
        topics.streams.removeListener(listener)
        listener.close()
    delete_topic(root, "t")
    appender(make(root, 3)).append([batch(0, *"uvwxyz")])
    with pytest.raises(PySparkException, match="topic 't' was deleted and created again"):
        drain(topics, root, tmp_path, **options)
