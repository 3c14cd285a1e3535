"""The tables and views of a root as temporary views of a Spark session.

The tables are Delta tables, which executors read in parallel and with the query's filters. The
views are those of `schemas/views.sql`, which DuckDB uses too.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from group_coordinator.pipeline.delta import absolute_uri, is_table, open_delta
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor.as_of import open_as_of, to_ms
from group_coordinator.pipeline.monitor.catalog import LOGS, Catalog
from group_coordinator.pipeline.monitor.log_tables import COMPUTED
from group_coordinator.pipeline.session.checkpoint_location import (
    hadoop_uri,
    store_class,
    store_packages,
)
from group_coordinator.pipeline.session.driver_jvm import from_arrow_schema, has_class
from group_coordinator.pipeline.session.spark_settings import packages
from group_coordinator.pipeline.spark.computed_tables import create_computed_views
from group_coordinator.pipeline.spark.view_sql import (
    spark_statements,
    table_query,
    with_dependencies,
)
from group_coordinator.pipeline.tables import check_columns, table_uri
from group_coordinator.schemas.tables import ON_DEMAND, TABLES, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

# How Spark refuses ``delta.`path` `` without Delta's jar, and without its extension and catalog.
_WITHOUT_DELTA = ("TABLE_OR_VIEW_NOT_FOUND", "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY")


# The time of a query, because some views show how long ago an event was.
NOW = "current_timestamp()"
_TABLES = {LOGS.get(each.name, each.name): each for each in (*TABLES.values(), *ON_DEMAND)}


class UnknownView(Failure):
    """An error: a root has no table, view or table function of this name."""


class DeltaMissing(Failure):
    """An error: the session cannot read Delta tables; the message has the options to start it."""


class StoreMissing(Failure):
    """An error: the session lacks the object store's classes; the message has the packages."""


def register_views(
    spark: SparkSession,
    root: str,
    prefix: str = "",
    as_of: datetime | None = None,
    names: Iterable[str] | None = None,
) -> list[str]:
    """Create a temporary view for each table and view of a root; return the names.

    The macros `offsets_as_of` and `verdicts_over` become table functions. All names begin with
    `prefix`. With `names`, only these and the ones that they use are created, because Spark takes
    half a second for a view. The result has neither the functions nor `log_segments` and
    `unindexed_topics`.

    Each query reads the newest versions of the tables, or with `as_of` the versions at that time;
    a time without a zone is UTC. A table that is created later is empty here until this function
    is called again. Times have Spark's type `timestamp`. No view depends on the session's time
    zone.

    The driver and the executors must reach the root. Executors need this package only for
    `log_segments`, `unindexed_topics` and the views that use them, and not with `as_of`. Raises
    NoRoot, StoreMissing, DeltaMissing, UnknownView, NotKept, SchemaMismatch and LaterRelease.
    """
    _check_reach(spark, root)
    root = absolute_uri(root)
    Catalog(root).close()
    moment = as_of.replace(tzinfo=UTC) if as_of is not None and as_of.tzinfo is None else as_of
    now = NOW if moment is None else f"timestamp_millis({to_ms(moment)})"
    statements = spark_statements([*_TABLES, *COMPUTED], prefix, now)
    known = [*_TABLES, *COMPUTED, *statements]
    wanted = set(known if names is None else names)
    if unknown := wanted.difference(known):
        raise UnknownView(f"no table or view is called {', '.join(sorted(unknown))}")
    needed = with_dependencies(statements, wanted)
    for name, table in _TABLES.items():
        if name in needed:
            _show_table(spark, prefix + name, _query(root, table, moment))
    create_computed_views(spark, root, prefix, moment, needed)
    for name, statement in statements.items():
        if name in needed:
            spark.sql(statement.sql)
    shown = [*_TABLES, *(name for name, each in statements.items() if each.is_view)]
    return [prefix + name for name in shown if name in needed]


def _check_reach(spark: SparkSession, root: str) -> None:
    """Raise StoreMissing if the driver lacks the classes of the root's store.

    A session of Spark Connect is not checked, because its driver is a process of the server.
    """
    needed = store_class(root)
    if needed is None or getattr(spark, "sparkContext", None) is None:
        return
    if not has_class(spark, needed):
        raise StoreMissing(
            f"this session cannot reach {root}: start it with --packages "
            f"{','.join([packages(delta=True), *store_packages(root)])}, and tell Hadoop of the "
            "store, as pipeline/spark/README.md shows"
        )


def _query(root: str, table: Table, as_of: datetime | None) -> str:
    """Return the query that reads a table: the columns of this release, then the other columns."""
    uri = table_uri(root, table)
    handle = None
    if is_table(uri):
        handle = open_delta(uri) if as_of is None else open_as_of(uri, as_of)
    wanted = from_arrow_schema(table.schema)
    if handle is None:
        return table_query(wanted, StructType(), None)
    check_columns(handle, table)
    found = from_arrow_schema(pa.schema(handle.schema().to_arrow()))
    version = None if as_of is None else handle.version()
    return table_query(wanted, found, hadoop_uri(uri), version)


def _show_table(spark: SparkSession, name: str, query: str) -> None:
    try:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")
    except AnalysisException as error:
        if error.getCondition() not in _WITHOUT_DELTA:
            raise
        raise DeltaMissing(
            f"this session reads no Delta tables: start it with --packages {packages(delta=True)} "
            "and Delta's extension and catalog, as pipeline/spark/README.md shows"
        ) from error
