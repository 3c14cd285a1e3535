"""A Spark data source of `log_segments` and `unindexed_topics`, the tables that Python computes.

A Python worker computes the rows each time a query reads them. The worker must reach the root and
must have this package.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.monitor.log_tables import COMPUTED
from group_coordinator.pipeline.session.submitted import driver_path

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from datetime import datetime

    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_FORMAT = "group-coordinator-table"
_IN_SPARK = {"VARCHAR": "STRING", "INTEGER": "INT", "BIGINT": "BIGINT"}
# Spark's default: the first `python3` on the PATH, which may not have this package.
_DEFAULT_PYTHON = "python3"


def create_computed_views(
    spark: SparkSession, root: str, prefix: str, as_of: datetime | None, names: Container[str]
) -> None:
    """Create a temporary view of each computed table in `names`.

    Each query computes the rows again. With `as_of`, this call computes the rows as of that time,
    and queries do not compute them again. Raises NotKept.
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
    """Return the rows of a computed table, now or as of a time. Raises NotKept."""
    catalog = Catalog(root, as_of)
    rows = catalog.query(f"SELECT * FROM {name}").rows
    catalog.close()
    return rows


def _register(spark: SparkSession) -> None:
    """Register the data source, which keeps the workers' Python and PYTHONPATH of this moment."""
    # A session of Spark Connect has no context: its server configures the workers' Python.
    context = getattr(spark, "sparkContext", None)
    with nullcontext() if context is None else _configured_worker_python(context):
        spark.dataSource.register(ComputedTable)


@contextmanager
def _configured_worker_python(context: SparkContext) -> Iterator[None]:
    """Configure the workers' Python so that it finds this package, and restore it at the end.

    On one machine, workers use the caller's Python unless another one is configured. On a cluster,
    Spark plans a query on the driver's machine with the executors' Python, so PYTHONPATH gets the
    driver's packages. The executors themselves find the package that is shipped to them.
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
    """A data source of one computed table, with the options `root` and `table`. Needs a schema."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return _FORMAT

    def reader(self, schema: StructType) -> ComputedReader:  # noqa: ARG002
        """Return a reader that computes the table's rows when it reads."""
        return ComputedReader(self.options["root"], self.options["table"])


class ComputedReader(DataSourceReader):
    """A reader of one partition: Spark plans a view's partitions once, and reads them per query."""

    def __init__(self, root: str, table: str) -> None:
        self._root = root
        self._table = table

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002
        """Compute and return the table's rows."""
        return iter(computed_rows(self._root, self._table))
