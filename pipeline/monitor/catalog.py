"""SQL over the tables of a root by DuckDB, without a JVM or a running coordinator."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.log import is_table
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.interrupt import duckdb_interrupted
from group_coordinator.pipeline.monitor import log_segments, unindexed
from group_coordinator.pipeline.monitor.interrupting import interrupts_end
from group_coordinator.pipeline.monitor.log_segments import (
    read_log_segments,
    read_past_log_segments,
)
from group_coordinator.pipeline.monitor.table_files import files_query
from group_coordinator.pipeline.monitor.unindexed import read_unindexed
from group_coordinator.pipeline.monitor.view_text import Named, Statement, names_in, read_statements
from group_coordinator.schemas import rows as stored
from group_coordinator.schemas.rows import TableRows, sql_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

T = TypeVar("T")


class NoRoot(Failure):
    """There is none of the project's tables under the root."""


class QueryError(Failure):
    """SQL that cannot be run; the message is DuckDB's."""


class AmbiguousVersion(Failure):
    """A version is of one table, and the query reads several."""


class Result(Struct):
    """Rows of a query, with the names of their columns."""

    columns: list[str]
    rows: list[tuple[Any, ...]]

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return each row as column name -> value."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


# Tables of changes are shown under these names: a view of the present state has the table's own.
LOGS = {"topics": "topic_changes", "acls": "acl_changes", "coordinators": "coordinator_events"}
LOG_SEGMENTS = "log_segments"
UNINDEXED = "unindexed_topics"
# What Python computes from the logs of the topics' tables: the columns of each, in DuckDB's types.
COMPUTED = {LOG_SEGMENTS: log_segments.COLUMNS, UNINDEXED: unindexed.COLUMNS}
_TABLES: dict[str, TableRows] = {LOGS.get(rows.name, rows.name): rows for rows in stored.ALL}
# What has to be opened before a table. Compaction writes a record to the history before it takes it
# out of the log: whoever opens the history first may find the record in neither. A group commits
# what it has read: whoever opens the ends first may find a commit beyond its partition's end.
_COMMITS_FIRST = ("offsets_topic", "offsets_history")
_BEFORE = {
    "offsets_history": ("offsets_topic",),
    "topic_index": _COMMITS_FIRST,
    LOG_SEGMENTS: _COMMITS_FIRST,
}

# How many values a query names at most.
_MOST_NAMED = 100


class Catalog:
    """The tables and views of one root, each as it is when a query first needs it.

    Raises NoRoot if none of the tables exists. A table that does not exist yet is shown as empty.
    For one thread at a time.

    With `as_of` the tables are what they were: all at that time, or the one table that a query
    reads at that version. Queries raise NotKept and AmbiguousVersion then.
    """

    def __init__(self, root: str, as_of: datetime | int | None = None) -> None:
        if not any(is_table(_uri(root, rows)) for rows in _TABLES.values()):
            raise NoRoot(f"no tables under {root}; start a coordinator with `run --root {root}`")
        self._root = root
        self._as_of = as_of
        self._views = read_statements("views.sql")
        # The functions that views compute with.
        self._functions = read_statements("duckdb_functions.sql")
        self._present: set[str] = set()
        self._held: set[str] = set()
        # The tables whose files DuckDB reads itself.
        self._by_files: list[str] = []
        now = clock_ms()
        if isinstance(as_of, datetime):
            from group_coordinator.pipeline.monitor.as_of import to_ms

            now = to_ms(as_of)
        self._connection = duckdb.connect(":memory:")
        with duckdb_interrupted():
            # Off: DuckDB would draw its progress bar over what a verb prints, on pipes too.
            self._connection.execute("SET enable_progress_bar = false")
            # A query must not fetch code over the network. What views need is within DuckDB.
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
        """Give back the memory; nothing can be asked any more."""
        self._connection.close()

    def names(self) -> list[str]:
        """Return the names of the tables and views that can be queried."""
        views = [view.name for view in self._views.values() if not view.is_macro]
        return [*_TABLES, *views]

    def has_table(self, name: str) -> bool:
        """Whether the table exists; one that does not is shown as empty."""
        return is_table(_uri(self._root, _TABLES[name]))

    def hold(self, name: str, sql: str | None = None) -> None:
        """Compute a view now; later queries, of other views too, are answered from memory.

        With `sql` what is computed is that query, under a new name or in the place of a view, of
        which it may leave out rows and columns that nobody will ask for. Raises QueryError.
        """
        query = sql or f"FROM {name}"
        self._run(query, lambda: self._keep(name, query))
        self._held.add(name)

    def _keep(self, name: str, query: str) -> None:
        self._connection.execute(f"CREATE TABLE holding AS {query}")
        if name in self._held:
            self._connection.execute(f"DROP TABLE {name}")
        elif name in self._views:
            self._connection.execute(f"DROP VIEW {name}")
        self._connection.execute(f"ALTER TABLE holding RENAME TO {name}")

    def _run(self, sql: str, ask: Callable[[], T]) -> T:
        """Make what a query names, and ask. Raises QueryError."""
        try:
            with duckdb_interrupted(), interrupts_end(self._connection):
                self._provide(sql)
                try:
                    return self._answer(ask)
                except duckdb.CatalogException:
                    # A name in a string, as in `query_table('groups')`.
                    self._make_all(self._known())
                    return self._answer(ask)
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except duckdb.Error as error:
            raise QueryError(str(error)) from error

    def _answer(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except duckdb.InvalidInputException:
            # A file lacks a column that its table was given later.
            if not self._by_files:
                raise
            names, self._by_files = self._by_files, []
            for name in names:
                self._show_rows(name, _TABLES[name])
            return ask()

    def _provide(self, sql: str) -> None:
        """Make what a query names: functions, tables, views; all if it names none, as `SHOW`."""
        named = names_in(self._ask, sql)
        names = self._known() if named is None else (self._of(named) or self._known())
        if isinstance(self._as_of, int):
            self._check_one_table(names)
        self._make_all(names)

    def _known(self) -> set[str]:
        return {*self._functions, *_TABLES, *COMPUTED, *self._views, *self._held}

    def _of(self, named: Named) -> set[str]:
        """Those of the names that are ours. A function may have a view's name, as `lag` has."""
        functions = {
            name
            for name in named.functions
            if name in self._functions or (name in self._views and self._views[name].is_macro)
        }
        return functions | (named.tables & self._known())

    def _check_one_table(self, names: set[str]) -> None:
        """Raise AmbiguousVersion if what is named stands on several tables."""
        tables = sorted(self._tables_below(names))
        if len(tables) != 1:
            raise AmbiguousVersion(
                f"a version is of one table, and this query reads {', '.join(tables)}: "
                "give a time, at which all of them are read, or query one table"
            )

    def _tables_below(self, names: set[str]) -> set[str]:
        views = [self._views[name] for name in names if name in self._views]
        return (set(names) - self._views.keys() - self._functions.keys()).union(
            *(self._tables_below(self._below(view)) for view in views)
        )

    def _below(self, statement: Statement) -> set[str]:
        """What a view or a macro stands on."""
        named = names_in(self._ask, statement.query)
        assert named is not None, statement.name
        return self._of(named)

    def _make_all(self, names: set[str]) -> None:
        """Make tables and views in one order, whatever the order of the query."""
        for name in (*self._functions, *_TABLES, *COMPUTED, *self._views):
            if name in names:
                self._make(name)

    def _make(self, name: str) -> None:
        if name in self._present:
            return
        self._present.add(name)
        statement = self._functions.get(name) or self._views.get(name)
        if statement is not None:
            self._make_all(self._below(statement))
            self._connection.execute(statement.sql)
            return
        for earlier in _BEFORE.get(name, ()):
            self._make(earlier)
        if name == LOG_SEGMENTS:
            self._show_log_segments()
        elif name == UNINDEXED:
            self._show_unindexed()
        else:
            self._show(name, _TABLES[name])

    def _show(self, name: str, rows: TableRows) -> None:
        uri = _uri(self._root, rows)
        if not is_table(uri):
            columns = ", ".join(f'"{field}" {type_}' for field, type_ in sql_columns(rows).items())
            self._connection.execute(f"CREATE TABLE {name}_rows ({columns})")
            self._show_plain(name, rows, f"FROM {name}_rows")
            return
        query = None if self._as_of is not None else files_query(self._ask, uri, rows)
        if query is None:
            self._show_rows(name, rows)
        else:
            self._by_files.append(name)
            self._show_plain(name, rows, query)

    def _show_rows(self, name: str, rows: TableRows) -> None:
        """Show a table as delta-rs and Arrow read it: from any store, of any release, or as was."""
        from group_coordinator.pipeline.monitor.arrow_rows import table_rows

        self._connection.register(f"{name}_rows", table_rows(self._root, rows.name, self._as_of))
        self._show_plain(name, rows, f"FROM {name}_rows")

    def _show_plain(self, name: str, rows: TableRows, query: str) -> None:
        """Show the rows of a query. Times become plain UTC: DuckDB needs an extension for zones.

        Columns come in the order of this release, and then those that a later release has: a table
        that was upgraded has them in another order than a new one.
        """
        columns = sql_columns(rows)
        shown = ", ".join(
            f'CAST("{field}" AS TIMESTAMP) AS "{field}"'
            if type_ == stored.TIMESTAMP
            else f'"{field}"'
            for field, type_ in columns.items()
        )
        others = ", ".join(f'"{field}"' for field in columns)
        self._connection.execute(
            f"CREATE OR REPLACE VIEW {name} AS SELECT {shown}, * EXCLUDE ({others}) FROM ({query})"
        )

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    def _show_log_segments(self) -> None:
        if self._as_of is None:
            self._make("topics")
            rows = read_log_segments(self._root, self._ask)
        else:
            rows = read_past_log_segments(self._root, self._as_of)
        self._store(LOG_SEGMENTS, rows)

    def _show_unindexed(self) -> None:
        rows: list[tuple[str, int]] = []
        # What was indexed when is not asked of the past: the commits since may be gone.
        if self._as_of is None:
            self._make("topics")
            self._make("topic_index")
            rows = read_unindexed(self._ask)
        self._store(UNINDEXED, rows)

    def _store(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Keep rows as a table."""
        columns = COMPUTED[name]
        typed = ", ".join(f'"{column}" {type_}' for column, type_ in columns.items())
        self._connection.execute(f"CREATE TABLE {name} ({typed})")
        values = ", ".join(f"unnest(CAST(? AS {type_}[]))" for type_ in columns.values())
        given = [list(each) for each in zip(*rows, strict=True)] or [[]] * len(columns)
        self._connection.execute(f"INSERT INTO {name} SELECT {values}", given)


def _result(cursor: duckdb.DuckDBPyConnection) -> Result:
    columns = [column[0] for column in cursor.description or ()]
    return Result(columns, cursor.fetchall())


def among(column: str, values: Sequence[str]) -> tuple[str, list[Any]]:
    """Return a condition that a column is one of the values, and the condition's parameters.

    DuckDB looks for values that the query names where it reads the files, and so passes over most
    of these; it joins with a list afterwards.
    """
    if len(values) > _MOST_NAMED:
        return f"{column} IN (SELECT unnest(?))", [list(values)]
    return f"{column} IN ({', '.join('?' * len(values)) or 'NULL'})", list(values)


def _uri(root: str, rows: TableRows) -> str:
    return f"{root.rstrip('/')}/{rows.name}"
