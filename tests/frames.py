"""Comparison of frames that Spark has read with Arrow's rows: the same types and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from chispa import assert_df_equality
from pyspark.sql import functions as f

from group_coordinator.pipeline.session.driver_jvm import from_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# With these settings a session reads small tables in half of the CPU time. Results do not change.
_FEW_TASKS = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# Sums of doubles in different orders differ in their last digits.
_DIGITS = 6


def light_session(spark: SparkSession) -> SparkSession:
    """Start a second session in this JVM that reads small tables with few tasks."""
    session = spark.newSession()
    for name, value in _FEW_TASKS.items():
        session.conf.set(name, value)
    return session


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return Arrow's rows as a DataFrame, by Spark's own conversion of their types.

    Times without a zone keep their type, whatever the session's `spark.sql.timestampType` is.
    """
    # pyspark cannot determine the type of a column without chunks, and loses the rows after an
    # empty batch.
    whole = rows.combine_chunks() if rows.num_rows else rows.schema.empty_table()
    return spark.createDataFrame(whole, from_arrow_schema(rows.schema))


def assert_same_rows(read: DataFrame, expected: pa.Table | DataFrame, **options: Any) -> None:
    """Assert that both have the same columns, types and rows, in any order.

    `options` are those of chispa.
    """
    if not hasattr(expected, "sparkSession"):
        expected = frame_of(read.sparkSession, expected)
    # With a single partition, sorting needs no shuffle.
    frames = (each.coalesce(1) for each in (read, expected))
    assert_df_equality(*frames, ignore_row_order=True, **options)


def assert_alike(found: DataFrame, rows: pa.Table) -> None:
    """Assert that Spark and DuckDB answer a view with the same columns, types and rows."""
    expected = _sorted(frame_of(found.sparkSession, _in_utc(rows)))
    assert found.dtypes == expected.dtypes
    assert_df_equality(_sorted(found), expected, ignore_nullable=True)


def _in_utc(rows: pa.Table) -> pa.Table:
    """Set the zone of DuckDB's times, which is UTC."""
    for place, field in enumerate(rows.schema):
        if field.type == pa.timestamp("us"):
            rows = rows.set_column(
                place, field.name, rows.column(place).cast(pa.timestamp("us", "UTC"))
            )
    return rows


def _sorted(rows: DataFrame) -> DataFrame:
    """Sort the rows in Python, because Spark takes seconds to compile nested orders."""
    shown = [
        f.round(f"`{name}`", _DIGITS).alias(name) if type_ == "double" else f.col(f"`{name}`")
        for name, type_ in rows.dtypes
    ]
    found = rows.select(shown).toArrow()
    order = sorted(range(found.num_rows), key=lambda place: repr(found.slice(place, 1).to_pylist()))
    return frame_of(rows.sparkSession, found.take(pa.array(order, pa.int64())))
