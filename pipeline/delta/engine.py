"""DuckDB with a memory limit, over the files of Delta tables.

DuckDB spills to a folder at its memory limit, so a query over a table of any size needs no JVM.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import duckdb

from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.interrupt import duckdb_interrupted

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from group_coordinator.pipeline.delta.data_file import DataFile


class Readable(Protocol):
    """A table with files that DuckDB can read."""

    def rows(self, files: Sequence[DataFile], by_name: bool) -> str:
        """Return the SQL that reads the files; with `by_name` also files that lack a column."""
        ...


class UnfitRows(Failure):
    """Rows of a file that do not fit their table: another type, or strings that are not UTF-8."""


class Engine:
    """A DuckDB connection limited to `memory_bytes` and `threads`, spilling to the scratch folder.

    It opens on first use, which takes 15 ms of CPU, because maintenance often has no work.
    """

    def __init__(self, memory_bytes: int, threads: int, scratch: Path) -> None:
        self.scratch = scratch
        self._views: dict[str, tuple[Readable, Sequence[DataFile]]] = {}
        self._config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory_bytes >> 20}MiB",
            "threads": threads,
            "temp_directory": str(scratch / "spill"),
            "autoinstall_known_extensions": False,
        }

    @functools.cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return duckdb.connect(":memory:", config=self._config)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        if "_connection" in vars(self):
            self._connection.close()

    def show(self, view: str, table: Readable, files: Sequence[DataFile]) -> None:
        """Define a view of the files' rows, without the table's partition columns."""
        self._views[view] = (table, files)
        self._define(view, by_name=False)

    def store(self, table: str, rows: pa.RecordBatchReader) -> None:
        """Store rows as a temporary table, which may spill. Raises Failure."""
        self._connection.register("rows_to_store", rows)
        try:
            with duckdb_interrupted():
                self._connection.execute(
                    f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT * FROM rows_to_store"
                )
        except duckdb.Error as error:
            raise Failure(f"DuckDB: {first_line(error)}") from error
        finally:
            self._connection.unregister("rows_to_store")

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows. Raises UnfitRows and other Failures."""
        try:
            with duckdb_interrupted():
                return self._rows(sql)
        except (duckdb.ConversionException, duckdb.InvalidInputException) as error:
            raise UnfitRows(f"DuckDB: {first_line(error)}") from error
        except duckdb.Error as error:
            raise Failure(f"DuckDB: {first_line(error)}") from error

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql).fetchall()
        except duckdb.InvalidInputException:
            # A file lacks a column that its table got later. Views by name find it, but cost 150 kB
            # of memory per file, and a table may have tens of thousands. So they are defined only
            # after a read has failed.
            for view in self._views:
                self._define(view, by_name=True)
            return self._connection.execute(sql).fetchall()

    def _define(self, view: str, by_name: bool) -> None:
        table, files = self._views[view]
        self._connection.execute(
            f"CREATE OR REPLACE TEMP VIEW {view} AS {table.rows(files, by_name)}"
        )
