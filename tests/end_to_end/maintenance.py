"""What an administrator does to the tables of a root, by one engine or another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Does one thing to the table in a folder.
Operation = Callable[[Path], object]
PROPERTY = "delta.checkpointInterval"


def first_column(table: Path) -> str:
    """A column by which files can be ordered, and rows told apart."""
    partitioned = DeltaTable(str(table)).metadata().partition_columns
    schema = DeltaTable(str(table)).schema().to_arrow()
    names = [
        field.name
        for field in pa.schema(schema)
        if field.name not in partitioned and str(field.type) in ("string", "int64", "utf8")
    ]
    return names[0]


def delta_rs() -> dict[str, Operation]:
    """The operations by delta-rs."""

    def merge_schema(table: Path) -> None:
        rows = DeltaTable(str(table)).to_pyarrow_table().slice(0, 1)
        more = rows.append_column("added_by_delta_rs", pa.array(["x"] * rows.num_rows, pa.string()))
        write_deltalake(str(table), more.slice(0, 0), mode="append", schema_mode="merge")

    return {
        "OPTIMIZE": lambda table: DeltaTable(str(table)).optimize.compact(),
        "Z-ORDER": lambda table: DeltaTable(str(table)).optimize.z_order([first_column(table)]),
        "VACUUM, 0 h": lambda table: DeltaTable(str(table)).vacuum(
            0, dry_run=False, enforce_retention_duration=False
        ),
        "ALTER TABLE": lambda table: DeltaTable(str(table)).alter.set_table_properties(
            {PROPERTY: "20"}
        ),
        "new column": merge_schema,
        "DELETE": lambda table: DeltaTable(str(table)).delete(f"{first_column(table)} = 'nothing'"),
        "DELETE all": lambda table: DeltaTable(str(table)).delete(),
        "RESTORE": lambda table: DeltaTable(str(table)).restore(
            DeltaTable(str(table)).version() - 1
        ),
    }


def spark_sql(spark: SparkSession) -> dict[str, Operation]:
    """The operations by Spark with delta-spark."""

    def run(statement: str) -> Operation:
        def on(table: Path) -> None:
            name = f"delta.`{table}`"
            newest = DeltaTable(str(table)).version()
            column = first_column(table) if "{column}" in statement else ""
            spark.sql(statement.format(table=name, column=column, before=newest - 1)).collect()

        return on

    return {
        "OPTIMIZE": run("OPTIMIZE {table}"),
        "Z-ORDER": run("OPTIMIZE {table} ZORDER BY ({column})"),
        "VACUUM, 0 h": run("VACUUM {table} RETAIN 0 HOURS"),
        "ALTER TABLE": run(f"ALTER TABLE {{table}} SET TBLPROPERTIES ('{PROPERTY}' = '20')"),
        "new column": run("ALTER TABLE {table} ADD COLUMN added_by_spark STRING"),
        "DELETE all": run("DELETE FROM {table}"),
        "RESTORE": run("RESTORE TABLE {table} TO VERSION AS OF {before}"),
    }
