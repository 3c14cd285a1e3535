"""SQL over the tables of a root with DuckDB, without a JVM or a running coordinator."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import is_table
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.interrupt import duckdb_interrupted, query_interrupted_by_sigint
from group_coordinator.pipeline.monitor.log_tables import (
    COMPUTED,
    LOG_SEGMENTS,
    UNINDEXED,
    read_log_segments,
    read_past_log_segments,
    read_unindexed,
)
from group_coordinator.pipeline.monitor.table_rows import files_query
from group_coordinator.pipeline.monitor.view_statements import (
    QueryNames,
    Statement,
    names_in_query,
    read_statements,
)
from group_coordinator.schemas import rows as stored
from group_coordinator.schemas.rows import SQL_NAMES, TableRows, sql_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

T = TypeVar("T")


class NoRoot(Failure):
    """A root has no table of the project."""


class QueryError(Failure):
    """A query that DuckDB rejects or cannot run; the message is from DuckDB."""


class AmbiguousVersion(Failure):
    """A version was given for a query that does not read exactly one table."""


class Result(Struct):
    """The rows of a query, with their column names."""

    columns: list[str]
    rows: list[tuple[Any, ...]]

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return each row as a map from column name to value."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


# Names of the change logs in SQL: the table's own name belongs to the view of the current state.
LOGS = {"topics": "topic_changes", "acls": "acl_changes", "coordinators": "coordinator_events"}
_TABLES: dict[str, TableRows] = {LOGS.get(rows.name, rows.name): rows for rows in stored.ALL}
# Tables that must be opened before another one. Compaction writes a record to the history before it
# removes it from the log: opened in the other order, both could lack it. A group commits offsets of
# records that it has read: with the ends opened first, a commit could exceed the end.
_COMMITS_FIRST = ("offsets_topic", "offsets_history")
_OPENED_BEFORE = {
    "offsets_history": ("offsets_topic",),
    "topic_index": _COMMITS_FIRST,
    LOG_SEGMENTS: _COMMITS_FIRST,
}

# The largest number of values that a query lists as parameters.
_MAX_LISTED = 100


class Catalog:
    """The tables and views of one root; a table is opened when a query first needs it.

    Raises NoRoot if no table exists; a single missing table is shown as empty. Only one thread may
    use a catalog at a time.

    A time `as_of` reads all tables at that time. A version `as_of` reads one table at that version,
    so a query may read only one table. Queries then raise NotKept and AmbiguousVersion.

    DuckDB has `threads` threads; None is one for each core.
    """

    def __init__(
        self, root: str, as_of: datetime | int | None = None, threads: int | None = None
    ) -> None:
        if not any(is_table(_uri(root, rows)) for rows in _TABLES.values()):
            raise NoRoot(f"no tables under {root}; start a coordinator with `run --root {root}`")
        self._root = root
        self._as_of = as_of
        self._views = read_statements("views.sql")
        # Macros and functions that the views use.
        self._functions = read_statements("duckdb_functions.sql")
        self._created: set[str] = set()
        self._materialized: set[str] = set()
        # Tables that DuckDB reads with its own Parquet reader.
        self._read_by_duckdb: list[str] = []
        now = clock_ms()
        if isinstance(as_of, datetime):
            from group_coordinator.pipeline.monitor.as_of import to_ms

            now = to_ms(as_of)
        self._connection = duckdb.connect(":memory:")
        with duckdb_interrupted():
            # DuckDB would draw its progress bar over a command's output, on pipes too.
            self._connection.execute("SET enable_progress_bar = false")
            if threads is not None:
                self._connection.execute(f"SET threads = {threads}")
            # A query must not load code over the network. The views use built-in functions.
            for name in ("autoinstall_known_extensions", "autoload_known_extensions"):
                self._connection.execute(f"SET {name} = false")
            self._connection.execute(f"CREATE MACRO snapshot_time() AS epoch_ms({now})")

    def query(self, sql: str, parameters: list[Any] | None = None) -> Result:
        """Run one query. Raises QueryError."""
        return self._run(sql, lambda: _result(self._connection.execute(sql, parameters)))

    def arrow(self, sql: str) -> pa.Table:
        """Run one query and return its rows as an Arrow table. Raises QueryError."""
        return self._run(sql, lambda: self._connection.sql(sql).to_arrow_table())

    def close(self) -> None:
        """Close the connection and free its memory; no further query is possible."""
        self._connection.close()

    def names(self) -> list[str]:
        """Return the names of the tables and views that can be queried."""
        views = [view.name for view in self._views.values() if not view.is_macro]
        return [*_TABLES, *views]

    def has_table(self, name: str) -> bool:
        """Return whether the table exists."""
        return is_table(_uri(self._root, _TABLES[name]))

    def materialize(self, name: str, sql: str | None = None) -> None:
        """Materialize a view; later queries, also of other views, read the result from memory.

        With `sql`, the result of that query is stored instead, under a new name or in place of the
        view; it may omit rows and columns that later queries do not read. Raises QueryError.
        """
        query = sql or f"FROM {name}"
        self._run(query, lambda: self._store_view(name, query))
        self._materialized.add(name)

    def _store_view(self, name: str, query: str) -> None:
        self._connection.execute(f"CREATE TABLE holding AS {query}")
        if name in self._materialized:
            self._connection.execute(f"DROP TABLE {name}")
        elif name in self._views:
            self._connection.execute(f"DROP VIEW {name}")
        self._connection.execute(f"ALTER TABLE holding RENAME TO {name}")

    def _run(self, sql: str, ask: Callable[[], T]) -> T:
        try:
            with duckdb_interrupted(), query_interrupted_by_sigint(self._connection):
                self._create_for(sql)
                try:
                    return self._run_created(ask)
                except duckdb.CatalogException:
                    # The query names a table in a string, as in `query_table('groups')`.
                    self._create_all(self._known())
                    return self._run_created(ask)
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except duckdb.Error as error:
            raise QueryError(str(error)) from error

    def _run_created(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except duckdb.InvalidInputException:
            # A file is older than a column of its table.
            if not self._read_by_duckdb:
                raise
            names, self._read_by_duckdb = self._read_by_duckdb, []
            for name in names:
                self._create_arrow_view(name, _TABLES[name])
            return ask()

    def _create_for(self, sql: str) -> None:
        """Create the functions, tables and views that a query names; all of them for `SHOW`."""
        named = names_in_query(self._fetch, sql)
        names = self._known() if named is None else (self._of(named) or self._known())
        if isinstance(self._as_of, int):
            self._check_one_table(names)
        self._create_all(names)

    def _known(self) -> set[str]:
        return {*self._functions, *_TABLES, *COMPUTED, *self._views, *self._materialized}

    def _of(self, named: QueryNames) -> set[str]:
        """Return the names that the catalog has; `lag` is a view, but also a DuckDB function."""
        functions = {
            name
            for name in named.functions
            if name in self._functions or (name in self._views and self._views[name].is_macro)
        }
        return functions | (named.tables & self._known())

    def _check_one_table(self, names: set[str]) -> None:
        tables = sorted(self._tables_of(names))
        if len(tables) != 1:
            raise AmbiguousVersion(
                f"a version belongs to one table, but this query reads {', '.join(tables)}: give a "
                "time, as of which all tables are read, or query one table"
            )

    def _tables_of(self, names: set[str]) -> set[str]:
        views = [self._views[name] for name in names if name in self._views]
        return (set(names) - self._views.keys() - self._functions.keys()).union(
            *(self._tables_of(self._dependencies(view)) for view in views)
        )

    def _dependencies(self, statement: Statement) -> set[str]:
        named = names_in_query(self._fetch, statement.query)
        assert named is not None, statement.name
        return self._of(named)

    def _create_all(self, names: set[str]) -> None:
        """Create tables and views in a fixed order, whatever their order in the query."""
        for name in (*self._functions, *_TABLES, *COMPUTED, *self._views):
            if name in names:
                self._create(name)

    def _create(self, name: str) -> None:
        if name in self._created:
            return
        self._created.add(name)
        statement = self._functions.get(name) or self._views.get(name)
        if statement is not None:
            self._create_all(self._dependencies(statement))
            self._connection.execute(statement.sql)
            return
        for earlier in _OPENED_BEFORE.get(name, ()):
            self._create(earlier)
        if name == LOG_SEGMENTS:
            self._create_log_segments()
        elif name == UNINDEXED:
            self._create_unindexed()
        else:
            self._create_table_view(name, _TABLES[name])

    def _create_table_view(self, name: str, rows: TableRows) -> None:
        uri = _uri(self._root, rows)
        if not is_table(uri):
            columns = ", ".join(f'"{field}" {type_}' for field, type_ in sql_columns(rows).items())
            self._connection.execute(f"CREATE TABLE {name}_rows ({columns})")
            self._create_view(name, rows, f"FROM {name}_rows")
            return
        query = None if self._as_of is not None else files_query(self._fetch, uri, rows)
        if query is None:
            self._create_arrow_view(name, rows)
        else:
            self._read_by_duckdb.append(name)
            self._create_view(name, rows, query)

    def _create_arrow_view(self, name: str, rows: TableRows) -> None:
        """Show a table by delta-rs and Arrow: any store, any release, any kept version."""
        from group_coordinator.pipeline.monitor.table_rows import table_rows

        self._connection.register(f"{name}_rows", table_rows(self._root, rows.name, self._as_of))
        self._create_view(name, rows, f"FROM {name}_rows")

    def _create_view(self, name: str, rows: TableRows, query: str) -> None:
        """Show the rows of a query, with times as UTC without a zone.

        DuckDB needs an extension for time zones. The columns of this release come first, in its
        order, because an upgraded table has another order than a new one. The last columns have
        the names that `SQL_NAMES` replaces.
        """
        values = {
            field: f'CAST("{field}" AS TIMESTAMP)' if type_ == stored.TIMESTAMP else f'"{field}"'
            for field, type_ in sql_columns(rows).items()
        }
        ours = [f'{value} AS "{SQL_NAMES.get(field, field)}"' for field, value in values.items()]
        others = ", ".join(f'"{field}"' for field in values)
        old = [f'{values[field]} AS "{field}"' for field in SQL_NAMES if field in values]
        shown = ", ".join([*ours, f"* EXCLUDE ({others})", *old])
        self._connection.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT {shown} FROM ({query})")

    def _fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    def _create_log_segments(self) -> None:
        if self._as_of is None:
            self._create("topics")
            rows = read_log_segments(self._root, self._fetch)
        else:
            rows = read_past_log_segments(self._root, self._as_of)
        self._store(LOG_SEGMENTS, rows)

    def _create_unindexed(self) -> None:
        rows: list[tuple[str, int]] = []
        # Not computed for the past: commits of users' tables may be gone since then.
        if self._as_of is None:
            self._create("topics")
            self._create("topic_index")
            rows = read_unindexed(self._fetch)
        self._store(UNINDEXED, rows)

    def _store(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        columns = COMPUTED[name]
        typed = ", ".join(f'"{column}" {type_}' for column, type_ in columns.items())
        self._connection.execute(f"CREATE TABLE {name} ({typed})")
        values = ", ".join(f"unnest(CAST(? AS {type_}[]))" for type_ in columns.values())
        given = [list(each) for each in zip(*rows, strict=True)] or [[]] * len(columns)
        self._connection.execute(f"INSERT INTO {name} SELECT {values}", given)


def _result(cursor: duckdb.DuckDBPyConnection) -> Result:
    columns = [column[0] for column in cursor.description or ()]
    return Result(columns, cursor.fetchall())


def in_clause(column: str, values: Sequence[str]) -> tuple[str, list[Any]]:
    """Return a condition that a column is one of the values, and the condition's parameters.

    DuckDB pushes listed values down to the Parquet reader, which skips most files. It joins with a
    longer list only after the files are read.
    """
    if len(values) > _MAX_LISTED:
        return f"{column} IN (SELECT unnest(?))", [list(values)]
    return f"{column} IN ({', '.join('?' * len(values)) or 'NULL'})", list(values)


def _uri(root: str, rows: TableRows) -> str:
    return f"{root.rstrip('/')}/{rows.name}"
