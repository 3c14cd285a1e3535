"""SQL over the tables of a root by DuckDB, without a JVM or a running coordinator."""

from __future__ import annotations

from importlib import resources
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from msgspec import Struct

from pipeline.delta.table import open_delta
from pipeline.errors import Failure
from pipeline.tables.columns import dataset
from pipeline.tables.store import table_uri
from schemas.tables import ON_DEMAND, TABLES, Table


class NoRoot(Failure):
    """There is none of the project's tables under the root."""


class QueryError(Failure):
    """SQL that cannot be run; the message is DuckDB's."""


class Result(Struct):
    """Rows of a query, with the names of their columns."""

    columns: list[str]
    rows: list[tuple[Any, ...]]

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return each row as column name -> value."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


# Tables of changes are shown under these names: a view of the present state has the table's own.
LOGS = {"topics": "topic_changes", "acls": "acl_changes", "coordinators": "coordinator_events"}


class Catalog:
    """The tables and views of one root, at the versions that the tables had when it was opened.

    Raises NoRoot if none of the tables exists. A table that does not exist yet is shown as empty.
    """

    def __init__(self, root: str) -> None:
        self._connection = duckdb.connect(":memory:")
        found = 0
        for table in (*TABLES.values(), *ON_DEMAND):
            name = LOGS.get(table.name, table.name)
            uri = table_uri(root, table)
            if DeltaTable.is_deltatable(uri):
                found += 1
                self._register(name, table, dataset(open_delta(uri), table))
            else:
                self._register(name, table, table.schema.empty_table())
        if not found:
            raise NoRoot(f"no tables under {root}; start a coordinator with `run --root {root}`")
        self._connection.execute(resources.files("schemas").joinpath("views.sql").read_text())

    def _register(self, name: str, table: Table, rows: Any) -> None:
        """Show the rows as a table. Times become plain UTC: DuckDB needs an extension for zones."""
        self._connection.register(f"{name}_rows", rows)
        times = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
        casts = ", ".join(f'CAST("{time}" AS TIMESTAMP) AS "{time}"' for time in times)
        plain = f"REPLACE ({casts})" if casts else ""
        self._connection.execute(f"CREATE VIEW {name} AS SELECT * {plain} FROM {name}_rows")

    def query(self, sql: str, parameters: list[Any] | None = None) -> Result:
        """Run one query. Raises QueryError."""
        try:
            cursor = self._connection.execute(sql, parameters)
            columns = [column[0] for column in cursor.description or ()]
            return Result(columns, cursor.fetchall())
        except duckdb.Error as error:
            raise QueryError(str(error)) from error
