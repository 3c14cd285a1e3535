"""Statements of Spark that rewrite a table keep its id."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from group_coordinator.pipeline.delta import identity
from group_coordinator.pipeline.delta.appender import Appender

pytestmark = [pytest.mark.full, pytest.mark.spark]
ROWS = pa.table({"n": pa.array([1], pa.int64())})


def overwrite_schema(spark: SparkSession, path: str) -> None:
    rows = spark.sql("SELECT 2L AS n, 'b' AS added")
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", True).save(path)


def sql(statement: str) -> Callable[[SparkSession, str], object]:
    return lambda spark, path: spark.sql(statement.format(table=f"delta.`{path}`")).collect()


# Delta's documentation says nothing of the id: it was measured with delta-spark 4.4.0.
KEEPING: dict[str, Callable[[SparkSession, str], object]] = {
    "overwriteSchema": overwrite_schema,
    "RESTORE": sql("RESTORE TABLE {table} TO VERSION AS OF 1"),
    "CREATE OR REPLACE": sql("CREATE OR REPLACE TABLE {table} (n BIGINT) USING delta"),
}


@pytest.mark.parametrize("statement", KEEPING)
def test_spark_keeps_the_id_of_the_table_and_an_appender_continues(
    light_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr(identity, "CHECK_S", 0.0)
    sql("CREATE TABLE {table} (n BIGINT) USING delta")(light_spark, str(tmp_path))
    appender = Appender(tmp_path)
    for _ in range(3):
        appender.append(ROWS)
    table_id = DeltaTable(str(tmp_path)).metadata().id
    KEEPING[statement](light_spark, str(tmp_path))
    assert DeltaTable(str(tmp_path)).metadata().id == table_id
    assert appender.append(ROWS)
