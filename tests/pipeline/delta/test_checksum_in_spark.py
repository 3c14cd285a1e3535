"""Spark takes the checksums that are written here for its own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from group_coordinator.pipeline.delta.appender import Appender
from tests.frames import assert_same_rows

pytestmark = [pytest.mark.full, pytest.mark.spark]


def test_a_table_with_a_comment_can_be_described_after_an_append(
    light_spark: SparkSession, tmp_path: Path
) -> None:
    spark = light_spark
    table = f"delta.`{tmp_path}`"
    spark.sql(f"CREATE TABLE {table} (n BIGINT COMMENT 'a number', p STRING) USING delta")
    appender = Appender(tmp_path)
    spark.sql(f"COMMENT ON TABLE {table} IS 'what was counted'")
    rows = pa.table({"n": pa.array([1], pa.int64()), "p": ["a"]})
    appender.append(rows)
    assert (tmp_path / "_delta_log" / f"{2:020}.crc").exists()
    described = spark.sql(f"DESCRIBE DETAIL {table}").select("numFiles", "description")
    expected = spark.createDataFrame([(1, "what was counted")], described.schema)
    assert_same_rows(described, expected)
    # Without the comment of its column.
    assert_same_rows(spark.table(table), rows, ignore_metadata=True)
