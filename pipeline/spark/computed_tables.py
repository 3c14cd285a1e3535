"""A Spark data source of `log_segments` and `unindexed_topics`, the tables that Python computes.

A Python worker computes the rows each time a query reads them. The worker must reach the root and
must have this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.monitor.log_tables import COMPUTED
from group_coordinator.pipeline.spark.workers import register_source

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from datetime import datetime

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_FORMAT = "group-coordinator-table"
_IN_SPARK = {"VARCHAR": "STRING", "INTEGER": "INT", "BIGINT": "BIGINT"}


def create_computed_views(
    spark: SparkSession, root: str, prefix: str, as_of: datetime | None, names: Container[str]
) -> None:
    """Create a temporary view of each computed table in `names`.

    Each query computes the rows again. With `as_of`, this call computes the rows as of that time,
    and queries do not compute them again. Raises NotKept.
    """
    wanted = {name: columns for name, columns in COMPUTED.items() if name in names}
    if wanted and as_of is None:
        register_source(spark, ComputedTable)
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
