"""The tables and views of a root in a Spark session, by the same SQL as the command `sql`.

The views are written in DuckDB's dialect, and DuckDB answers them here too: a Python data source
runs one in a worker whenever a query reads it. So each view has one definition, and its rows cannot
differ between the engines. A view is read whole before Spark filters it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.session.driver_jvm import from_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_FORMAT = "group-coordinator-view"
_BATCH_ROWS = 10_000
# Spark's own: the first one on the PATH, which need not have this package.
_DEFAULT_PYTHON = "python3"


def register_views(spark: SparkSession, root: str, prefix: str = "") -> list[str]:
    """Make a temporary view of the session for each table and view of a root; return their names.

    Each query reads the tables as they are then. The workers must reach the root, and have this
    package; on one machine they are of the caller's Python, unless PYSPARK_PYTHON names one. Times
    are UTC, of Spark's type `timestamp_ntz`. Macros with arguments, as `offsets_as_of`, are not
    among the views. Raises NoRoot.
    """
    _register(spark)
    catalog = Catalog(root)
    names = catalog.names()
    for name in names:
        schema = from_arrow_schema(catalog.arrow(f"FROM {name} LIMIT 0").schema)
        rows = spark.read.format(_FORMAT).schema(schema)
        rows = rows.option("root", root).option("view", name)
        rows.load().createOrReplaceTempView(prefix + name)
    return [prefix + name for name in names]


def _register(spark: SparkSession) -> None:
    """Register the data source, which keeps the Python that the session's workers have then."""
    # Spark Connect has no context: its server knows its workers' Python.
    context = getattr(spark, "sparkContext", None)
    if context is None or context.pythonExec != _DEFAULT_PYTHON or not _is_local(context):
        spark.dataSource.register(ViewSource)
        return
    context.pythonExec = sys.executable
    try:
        spark.dataSource.register(ViewSource)
    finally:
        context.pythonExec = _DEFAULT_PYTHON


def _is_local(context: SparkContext) -> bool:
    """Whether the workers run on this machine, where the caller's Python is."""
    return (context.master or "").startswith("local")


class ViewSource(DataSource):
    """A view as a data source; the options `root` and `view` say which. It needs a schema."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return _FORMAT

    def reader(self, schema: StructType) -> ViewReader:  # noqa: ARG002
        """Return a reader of the view as it is when it reads."""
        return ViewReader(self.options["root"], self.options["view"])


class ViewReader(DataSourceReader):
    """Reads a view in one piece."""

    def __init__(self, root: str, view: str) -> None:
        self._root = root
        self._view = view

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield the view's rows."""
        catalog = Catalog(self._root)
        rows = catalog.arrow(f"FROM {self._view}")
        catalog.close()
        yield from rows.to_batches(_BATCH_ROWS)
