"""Rows that Python has read, for chispa to compare with what Spark reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chispa import assert_df_equality

from pipeline.session.driver_jvm import from_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows as Spark's, which takes no column without a chunk; times without a zone stay so."""
    schema = from_arrow_schema(rows.schema)
    return spark.createDataFrame(rows if rows.num_rows else rows.schema.empty_table(), schema)


def assert_same_rows(ours: DataFrame, theirs: DataFrame) -> None:
    """Check that both have the same columns, types and rows, in whatever order.

    Not by chispa's `ignore_row_order`, which has Spark exchange the rows among its tasks.
    """
    assert_df_equality(ours, theirs, transforms=[_in_order], ignore_nullable=True)


def _in_order(rows: DataFrame) -> DataFrame:
    return rows.coalesce(1).sortWithinPartitions(rows.columns)
