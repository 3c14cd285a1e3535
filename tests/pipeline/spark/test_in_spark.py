"""Real queries of a real session: their progress is a group's offsets, with its lag."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.spark import ProgressCommits
from tests.pipeline.small import SmallCoordinator
from tests.pipeline.topics.tables import append, define
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.full, pytest.mark.spark]


@pytest.fixture
def coordinator(root: str) -> Iterator[SmallCoordinator]:
    coordinator = SmallCoordinator(root)
    yield coordinator
    coordinator.stop()


@pytest.mark.usefixtures("coordinator")
def test_what_queries_have_read_is_committed(
    spark_with_delta: SparkSession, root: str, tmp_path: Path
) -> None:
    spark = spark_with_delta
    orders = str(tmp_path / "orders")
    append(orders, range(20))
    append(orders, range(20, 50))
    listener = ProgressCommits(root, "job", ["from delta", "from rate"])
    spark.streams.addListener(listener)
    try:
        _drain(spark.readStream.format("delta").load(orders), "from delta", tmp_path)
        rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
        # Batch after batch, it would be far ahead of what Spark tells its listeners on a busy
        # machine: the next test's listener would hear of this query for a minute.
        query = _start(rate, "from rate", tmp_path, processingTime="1 second")
        found = _committed(root, "orders", "rate")
        query.stop()
    finally:
        spark.streams.removeListener(listener)
        listener.close()
    assert found["orders"] == 2
    assert found["rate"] % 5 == 0


@pytest.mark.usefixtures("coordinator")
def test_a_query_over_a_topics_table_has_that_topics_lag(
    spark_with_delta: SparkSession, root: str, tmp_path: Path
) -> None:
    spark = spark_with_delta
    orders = str(tmp_path / "orders")
    append(orders, range(50))
    define(root, orders, 2)
    listener = ProgressCommits(root, "job")
    spark.streams.addListener(listener)
    try:
        _drain(spark.readStream.format("delta").load(orders), "from delta", tmp_path)
        _committed(root, "t")
    finally:
        spark.streams.removeListener(listener)
        listener.close()
    rows = Catalog(root).query("SELECT group_id, topic, lag, log_end_offset FROM lag").rows
    assert {row[:3] for row in rows} == {("job", "t", 0)}
    assert sum(end for *_, end in rows) == 50


def _committed(root: str, *topics: str) -> dict[str, int]:
    """Wait until offsets of these topics are committed: Spark tells its listeners later."""

    def found() -> dict[str, int]:
        asked = "SELECT topic, max(committed_offset) FROM committed_offsets GROUP BY topic"
        return dict(Catalog(root).query(asked).rows)

    # A look takes more of a busy machine than the commit that it looks for.
    wait_until(
        lambda: f"{topics} are committed: {found()}",
        lambda: found().keys() >= set(topics),
        limit_s=240.0,
        every_s=0.5,
    )
    return found()


def _drain(rows: DataFrame, name: str, folder: Path) -> None:
    _start(rows, name, folder, availableNow=True).awaitTermination()


def _start(rows: DataFrame, name: str, folder: Path, **trigger: Any):
    writer = rows.writeStream.format("noop").queryName(name)
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint of {name}"))
    return (writer.trigger(**trigger) if trigger else writer).start()
