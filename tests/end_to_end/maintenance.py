"""An administrator's operations on the tables of a root, by delta-rs or by Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# An operation on the table in a folder.
Operation = Callable[[Path], object]
PROPERTY = "delta.checkpointInterval"


def by_delta_rs() -> dict[str, Operation]:
    """Return the operations by delta-rs, by the names of the page."""

    def optimize(table: Path) -> None:
        DeltaTable(str(table)).optimize.compact()

    def z_order(table: Path) -> None:
        DeltaTable(str(table)).optimize.z_order([_column_of(table)])

    def vacuum(table: Path) -> None:
        DeltaTable(str(table)).vacuum(0, dry_run=False, enforce_retention_duration=False)

    def alter(table: Path) -> None:
        DeltaTable(str(table)).alter.set_table_properties({PROPERTY: "20"})

    def merge_schema(table: Path) -> None:
        rows = DeltaTable(str(table)).to_pyarrow_table().slice(0, 0)
        wider = rows.append_column("added_by_delta_rs", pa.array([], pa.string()))
        write_deltalake(str(table), wider, mode="append", schema_mode="merge")

    return {
        "OPTIMIZE": optimize,
        "Z-ORDER": z_order,
        "VACUUM, 0 h": vacuum,
        "ALTER TABLE": alter,
        "schema merge": merge_schema,
    }


def by_spark(spark: SparkSession) -> dict[str, Operation]:
    """Return the same operations by Spark with delta-spark."""

    def run(statement: str) -> Operation:
        def on(table: Path) -> None:
            text = statement.format(table=f"delta.`{table}`", column=_column_of(table))
            spark.sql(text).collect()

        return on

    return {
        "OPTIMIZE": run("OPTIMIZE {table}"),
        "Z-ORDER": run("OPTIMIZE {table} ZORDER BY ({column})"),
        "VACUUM, 0 h": run("VACUUM {table} RETAIN 0 HOURS"),
        "ALTER TABLE": run(f"ALTER TABLE {{table}} SET TBLPROPERTIES ('{PROPERTY}' = '20')"),
        "schema merge": run("ALTER TABLE {table} ADD COLUMN added_by_spark STRING"),
    }


def _column_of(table: Path) -> str:
    """Return a column for ordering the rows of a table."""
    handle = DeltaTable(str(table))
    partitioned = handle.metadata().partition_columns
    fields = pa.schema(handle.schema().to_arrow())
    return next(
        field.name
        for field in fields
        if field.name not in partitioned and str(field.type) in ("string", "int64")
    )
