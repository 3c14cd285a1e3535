"""Tables that Spark has altered, and what Spark reads of them after `repair`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.torn import find_torn
from group_coordinator.pipeline.upkeep.repair import repair

pytestmark = [pytest.mark.full, pytest.mark.spark]

SET = "ALTER TABLE {} SET TBLPROPERTIES"
# By its name, what is done to a table of the numbers 0 to 5 in two files.
ALTERED = {
    "deletionVectors": [
        f"{SET} ('delta.enableDeletionVectors' = 'true')",
        "DELETE FROM {} WHERE n IN (1, 4)",
        "DELETE FROM {} WHERE n = 2",
    ],
    "columnMapping": [
        f"{SET} ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', "
        "'delta.minWriterVersion' = '5')",
        "ALTER TABLE {} RENAME COLUMN n TO m",
        "ALTER TABLE {} ADD COLUMN later STRUCT<a: BIGINT>",
        "INSERT INTO {} VALUES (6, struct(60))",
        "ALTER TABLE {} RENAME COLUMN m TO n",
    ],
    "checkpointProtection": [
        f"{SET} ('delta.enableDeletionVectors' = 'true')",
        "DELETE FROM {} WHERE n = 1",
        "ALTER TABLE {} DROP FEATURE deletionVectors",
    ],
    "inCommitTimestamp": [
        f"{SET} ('delta.enableInCommitTimestamps' = 'true')",
        "INSERT INTO {} VALUES (6)",
    ],
}


def test_spark_reads_a_table_that_is_plain_again(light_spark: SparkSession, tmp_path: Path) -> None:
    spark = light_spark
    before = {}
    for feature, statements in ALTERED.items():
        table = f"delta.`{tmp_path}/{feature}`"
        for first in (0, 3):
            numbers = pa.table({"n": pa.array(range(first, first + 3), pa.int64())})
            write_deltalake(str(tmp_path / feature), numbers, mode="append")
        for statement in statements:
            spark.sql(statement.format(table))
        before[feature] = sorted(spark.table(table).collect())
    assert [(each.table, each.asks_for) for each in repair(str(tmp_path), execute=True)] == [
        (feature, (feature,)) for feature in sorted(ALTERED)
    ]
    for feature, rows in before.items():
        table = f"delta.`{tmp_path}/{feature}`"
        (detail,) = spark.sql(f"DESCRIBE DETAIL {table}").collect()
        assert (detail["minReaderVersion"], detail["minWriterVersion"]) == (1, 2)
        assert sorted(spark.table(table).collect()) == rows
        Appender(tmp_path / feature).append(pa.table({"n": pa.array([9], pa.int64())}))
        assert spark.table(table).count() == len(rows) + 1
        spark.sql(f"DELETE FROM {table} WHERE n = 0")
        assert spark.table(table).count() == len(rows)


def test_a_delta_checkpoint_of_another_form_is_not_torn_and_the_way_out_is_named(
    light_spark: SparkSession, tmp_path: Path
) -> None:
    spark, folder = light_spark, tmp_path / "table"
    table = f"delta.`{folder}`"
    spark.sql(
        f"CREATE TABLE {table} (n BIGINT) USING delta TBLPROPERTIES "
        "('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '1')"
    )
    spark.sql(f"INSERT INTO {table} VALUES (1)")
    assert find_torn(folder) == []
    (left,) = repair(str(tmp_path), execute=True)
    assert left.failure is not None
    assert "DROP FEATURE v2Checkpoint" in left.failure
    spark.sql(f"ALTER TABLE {table} DROP FEATURE v2Checkpoint")
    (done,) = repair(str(tmp_path), execute=True)
    assert done.lines() == ["table: asks for checkpointProtection: plain again"]
    Appender(folder).append(pa.table({"n": pa.array([2], pa.int64())}))
    assert sorted(row.n for row in spark.table(table).collect()) == [1, 2]
