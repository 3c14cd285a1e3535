"""What Spark has read against what Python has read: the same types, and the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chispa import assert_df_equality

from group_coordinator.pipeline.session.driver_jvm import from_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Arrow's rows as a DataFrame, by Spark's own conversion of their types.

    Times without a zone stay so, whatever the session's `spark.sql.timestampType` is.
    """
    # pyspark cannot tell the type of a column without chunks, and loses the rows after a batch that
    # has none.
    whole = rows.combine_chunks() if rows.num_rows else rows.schema.empty_table()
    return spark.createDataFrame(whole, from_arrow_schema(rows.schema))


def assert_same_rows(read: DataFrame, expected: pa.Table | DataFrame, **options: Any) -> None:
    """Both have the same columns, types and rows, in any order; `options` are those of chispa."""
    if not hasattr(expected, "sparkSession"):
        expected = frame_of(read.sparkSession, expected)
    # Of one partition no row is shuffled to be sorted.
    frames = (each.coalesce(1) for each in (read, expected))
    assert_df_equality(*frames, ignore_row_order=True, **options)
