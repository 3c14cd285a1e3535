"""Spark reads a topic's own table as it reads Kafka: by a batch, and by a stream."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.topics.logs import appender, batch, make

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

README = Path(__file__).parents[3] / "README.md"
# https://spark.apache.org/docs/latest/streaming/structured-streaming-kafka-integration.html
KAFKA_SOURCE = [
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
    ("headers", "array<struct<key:string,value:binary>>"),
]


def lines_of_readme() -> list[str]:
    (block,) = re.findall(r"```python\n(clicks = .*?)```", README.read_text(), re.DOTALL)
    return block.splitlines()


def test_readme_s_lines_read_a_topic_and_what_is_appended_to_it(
    spark_with_delta: SparkSession, tmp_path: Path
) -> None:
    spark = spark_with_delta
    topic = make(str(tmp_path / "root"))
    writer = appender(topic)
    given = batch(1, "a", "b")
    given.headers = [(("page", b"/cart"),), ()]
    writer.append([given, batch(0, "c")])

    table = spark.read.format("delta").load(topic.table)
    assert table.dtypes[: len(KAFKA_SOURCE)] == KAFKA_SOURCE
    first = table.where("partition = 1 AND offset = 0").first()
    assert first is not None
    assert (bytes(first.value), first.topic) == (b"a", "t")
    assert [(header.key, bytes(header.value)) for header in first.headers] == [("page", b"/cart")]

    *reads, writes = lines_of_readme()
    names = {"spark": spark}
    program = re.sub(r'load\("[^"]+"\)', f"load({topic.table!r})", "\n".join(reads))
    exec(program, names)
    assert writes.startswith("query.writeStream")
    query = names["query"]
    checkpoint = str(tmp_path / "checkpoint")

    def take() -> list[tuple[str, int, int]]:
        """What the stream reads that it had not read before."""
        taken: list[tuple[str, int, int]] = []
        stream = query.writeStream.foreachBatch(  # type: ignore[attr-defined]
            lambda rows, _: taken.extend((r.value, r.partition, r.offset) for r in rows.collect())
        )
        started = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        started.awaitTermination()
        return sorted(taken)

    assert take() == [("a", 1, 0), ("b", 1, 1), ("c", 0, 0)]
    writer.append([batch(1, "d")])
    assert take() == [("d", 1, 2)], "a stream goes on where it was"
