"""Spark reads a topic's own table as it reads Kafka: by a batch, and by a stream."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.settings import UpkeepSettings
from group_coordinator.pipeline.upkeep.topic_retention import retain_topics
from tests.frames import assert_same_rows, frame_of
from tests.pipeline.topics.logs import appender, batch, make

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.full, pytest.mark.spark]

PAGE = Path(__file__).parents[3] / "pipeline" / "topics" / "README.md"
# https://spark.apache.org/docs/latest/streaming/structured-streaming-kafka-integration.html
KAFKA_SOURCE = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)
# What the page's lines choose of it.
CHOSEN = "key string, value string, partition int, offset bigint"


def lines_of_the_page() -> list[str]:
    (block,) = re.findall(r"```python\n(clicks = .*?)```", PAGE.read_text(), re.DOTALL)
    return block.splitlines()


def test_the_page_s_lines_read_a_topic_and_what_is_appended_to_it(
    spark_with_delta: SparkSession, tmp_path: Path
) -> None:
    spark = spark_with_delta
    root = str(tmp_path / "root")
    topic = make(root)
    writer = appender(topic)
    given = batch(1, "a", "b")
    given.headers = [(("page", b"/cart"),), ()]
    writer.append([given, batch(0, "c")])

    first = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    second = first + timedelta(milliseconds=1)
    written = [
        (b"a", b"a", "t", 1, 0, first, 0, [("page", b"/cart")]),
        (b"b", b"b", "t", 1, 1, second, 0, None),
        (b"c", b"c", "t", 0, 0, first, 0, None),
    ]
    table = spark.read.format("delta").load(topic.table)
    as_kafka = table.select(table.columns[: len(written[0])])
    assert_same_rows(as_kafka, spark.createDataFrame(written, KAFKA_SOURCE))

    *reads, writes = lines_of_the_page()
    names = {"spark": spark}
    program = re.sub(r'load\("[^"]+"\)', f"load({topic.table!r})", "\n".join(reads))
    exec(program, names)
    assert writes.startswith("query.writeStream")
    query = names["query"]
    checkpoint = str(tmp_path / "checkpoint")

    def take() -> DataFrame:
        """What the stream reads that it had not read before."""
        taken: list[pa.Table] = []
        stream = query.writeStream.foreachBatch(  # type: ignore[attr-defined]
            lambda rows, _: taken.append(rows.toArrow())
        )
        started = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        started.awaitTermination()
        return frame_of(spark, pa.concat_tables(taken))

    read = [("a", "a", 1, 0), ("b", "b", 1, 1), ("c", "c", 0, 0)]
    assert_same_rows(take(), spark.createDataFrame(read, CHOSEN))
    writer.append([batch(1, "d")])
    # The stream goes on where it was.
    assert_same_rows(take(), spark.createDataFrame([("d", "d", 1, 2)], CHOSEN))
    # All records are older than the topic's retention.
    (removed,) = retain_topics(root, UpkeepSettings(), clock_ms())
    assert removed.records_after == 0
    writer.append([batch(1, "e")])
    assert_same_rows(take(), spark.createDataFrame([("e", "e", 1, 3)], CHOSEN))
