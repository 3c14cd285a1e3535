"""The two small tables of a root that Python computes, as Spark sources: where topics have records.

A worker computes the rows whenever a query reads them: it reaches the root and has this package.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from group_coordinator.pipeline.monitor.catalog import COMPUTED, Catalog
from group_coordinator.pipeline.session.submitted import driver_path

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from datetime import datetime

    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_FORMAT = "group-coordinator-table"
_IN_SPARK = {"VARCHAR": "STRING", "INTEGER": "INT", "BIGINT": "BIGINT"}
# Spark's own: the first one on the PATH, which need not have this package.
_DEFAULT_PYTHON = "python3"


def show_computed(
    spark: SparkSession, root: str, prefix: str, as_of: datetime | None, names: Container[str]
) -> None:
    """Make a temporary view of each such table of these names: its rows are new for each query.

    With `as_of` they are computed now, as they were then. Raises NotKept.
    """
    wanted = {name: columns for name, columns in COMPUTED.items() if name in names}
    if wanted and as_of is None:
        _register(spark)
    for name, columns in wanted.items():
        schema = ", ".join(f"`{column}` {_IN_SPARK[type_]}" for column, type_ in columns.items())
        if as_of is None:
            source = spark.read.format(_FORMAT).schema(schema)
            rows = source.option("root", root).option("table", name).load()
        else:
            rows = spark.createDataFrame(computed_rows(root, name, as_of), schema)
        rows.createOrReplaceTempView(prefix + name)


def computed_rows(root: str, name: str, as_of: datetime | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of one of the tables. Raises NotKept."""
    catalog = Catalog(root, as_of)
    rows = catalog.query(f"SELECT * FROM {name}").rows
    catalog.close()
    return rows


def _register(spark: SparkSession) -> None:
    """Register the data source, which keeps the Python and the paths that workers have then."""
    # Spark Connect has no context: its server knows its workers' Python.
    context = getattr(spark, "sparkContext", None)
    with nullcontext() if context is None else _workers_that_find_us(context):
        spark.dataSource.register(ComputedTable)


@contextmanager
def _workers_that_find_us(context: SparkContext) -> Iterator[None]:
    """Have workers find this package: here by the caller's Python, elsewhere as it is shipped.

    On a cluster Spark plans with the executors' Python beside the driver.
    """
    python, environment = context.pythonExec, context.environment
    if not (context.master or "").startswith("local"):
        path = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), driver_path()]))
        context.environment = {**environment, "PYTHONPATH": path}
    elif python == _DEFAULT_PYTHON:
        context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec, context.environment = python, environment


class ComputedTable(DataSource):
    """One of the tables; the options `root` and `table` say which. It needs a schema."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return _FORMAT

    def reader(self, schema: StructType) -> ComputedReader:  # noqa: ARG002
        """Return a reader of the table as it is when it reads."""
        return ComputedReader(self.options["root"], self.options["table"])


class ComputedReader(DataSourceReader):
    """Computes a table in one piece: Spark plans a view's partitions once, and reads them anew."""

    def __init__(self, root: str, table: str) -> None:
        self._root = root
        self._table = table

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002
        """Return the table's rows."""
        return iter(computed_rows(self._root, self._table))
