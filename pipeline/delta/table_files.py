"""The files of one version of a table: reading, writing and rewriting them by DuckDB.

DuckDB spills to a folder at its memory limit, so a query over a table of any size needs no JVM.

A rewrite is one commit that removes exactly the files that were read, so appends that are committed
meanwhile do not conflict. Of two concurrent rewrites the later one fails and changes nothing. Files
in an object store are copied to the scratch folder and back.
"""

from __future__ import annotations

import functools
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.commit import Changes, Move
from group_coordinator.pipeline.delta.data_file import DataFile, data_files, new_path
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.parquet_file import why_damaged
from group_coordinator.pipeline.delta.protocol import check_readable
from group_coordinator.pipeline.delta.replay import quoted
from group_coordinator.pipeline.delta.storage import flush
from group_coordinator.pipeline.delta.store_files import side_by_side
from group_coordinator.pipeline.delta.table import local_folder, refresh
from group_coordinator.pipeline.delta.writer import RewriteConflict, Writer
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.interrupt import duckdb_interrupted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import DeltaTable

# The number of rows of a row group, which a reader may have to hold in memory.
_ROW_GROUP = 122_880


class UnfitRows(Failure):
    """Rows of a file that do not fit their table: another type, or strings that are not UTF-8."""


class Engine:
    """A DuckDB connection limited to `memory_bytes` and `threads`, spilling to the scratch folder.

    It opens on first use, which takes 15 ms of CPU, because maintenance often has no work.
    """

    def __init__(self, memory_bytes: int, threads: int, scratch: Path) -> None:
        self.scratch = scratch
        self._views: dict[str, tuple[VersionFiles, Sequence[DataFile]]] = {}
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

    def show(self, view: str, table: VersionFiles, files: Sequence[DataFile]) -> None:
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


class VersionFiles:
    """The files of one version of a table, for reading with DuckDB.

    Raises UnsupportedTable if the files do not hold exactly the table's rows.
    """

    def __init__(self, handle: DeltaTable, scratch: Path) -> None:
        check_readable(handle)
        self.handle = handle
        self._scratch = scratch
        self._copies: dict[str, Path] = {}
        self._folder = local_folder(handle.table_uri)
        self._partition_by: list[str] = list(handle.metadata().partition_columns)
        schema = pa.schema(handle.schema().to_arrow())
        fields = [field for field in schema if field.name not in self._partition_by]
        self.columns = [field.name for field in fields]
        # An empty file that DuckDB reads first: it gives all columns their types, even if no other
        # file has them.
        self._template = scratch / f"{uuid.uuid4()}.parquet"
        pq.write_table(pa.schema(fields).empty_table(), self._template)

    def rows(self, files: Sequence[DataFile], by_name: bool) -> str:
        """Return the SQL that reads the files; with `by_name` also files that lack a column."""
        local = map if self._folder is not None else side_by_side
        paths = [self._template, *local(self.local, files)]
        listed = ", ".join(quoted(str(path)) for path in paths)
        names = ", ".join(f'"{name}"' for name in self.columns)
        options = f"hive_partitioning = false, union_by_name = {str(by_name).lower()}"
        return f"SELECT {names} FROM read_parquet([{listed}], {options})"

    def why_damaged(self, file: DataFile) -> str | None:
        """Return why a file is certainly damaged, None if it may be whole."""
        return why_damaged(fs.LocalFileSystem(), str(self.local(file)))

    def gone(self, files: Sequence[DataFile]) -> list[str]:
        """Return the paths of those files that are not in the handle's version."""
        present = {file.path for file in data_files(self.handle)}
        return [file.path for file in files if file.path not in present]

    def local(self, file: DataFile) -> Path:
        """Return the local path of the file, or of a copy of it in the scratch folder."""
        copy = self._copies.get(file.path)
        if copy is None and self._folder is not None:
            return self._folder / file.path
        if copy is None:
            copy = self._scratch / "read" / file.path
            copy.parent.mkdir(parents=True, exist_ok=True)
            ObjectStore(self.handle.table_uri).download(file.path, copy)
            self._copies[file.path] = copy
        return copy

    def read_instead(self, file: DataFile, copy: Path) -> None:
        """From now on, read this copy in place of the file."""
        self._copies[file.path] = copy


class TableFiles(VersionFiles):
    """The files of one version of a table, for reading, writing and rewriting."""

    def __init__(self, handle: DeltaTable, scratch: Path) -> None:
        super().__init__(handle, scratch)
        # Created here, so that it detects changes of other writers from now on. It flushes, because
        # files that a rewrite replaces will be deleted.
        self._writer = Writer(handle.table_uri, flushed=True)

    def write(
        self,
        engine: Engine,
        query: str,
        partition: Mapping[str, str | None] | None = None,
        modified_ms: int | None = None,
    ) -> DataFile | None:
        """Write the query's rows as one file, not yet in the table; None if there are no rows.

        `modified_ms` is the file's modification time in the log; None: now.
        """
        path, target = self.new_file(partition)
        ((records,),) = engine.run(
            f"COPY ({query}) TO {quoted(str(target))} "
            f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROW_GROUP})"
        )
        return self.written(path, records, partition, modified_ms)

    def new_file(self, partition: Mapping[str, str | None] | None = None) -> tuple[str, Path]:
        """Return a new file's path below the table's root, and the local path for writing it."""
        path = new_path(partition or {}, "zstd")
        target = (self._folder or self._scratch) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return path, target

    def written(
        self,
        path: str,
        records: int,
        partition: Mapping[str, str | None] | None = None,
        modified_ms: int | None = None,
    ) -> DataFile | None:
        """Move a file of `new_file` into the table's folder; it is not yet in the table.

        A file without records is deleted, and None returned.
        """
        target = (self._folder or self._scratch) / path
        size = target.stat().st_size
        if not records:
            target.unlink()
            return None
        if self._folder is None:
            ObjectStore(self.handle.table_uri).upload(target, path)
            target.unlink()
        else:
            # The files that it replaces will be deleted.
            flush(target)
            flush(target.parent)
            if target.parent != self._folder:
                flush(target.parent.parent)
        return DataFile(path, size, modified_ms or clock_ms(), records, dict(partition or {}))

    def rewrite(
        self,
        removed: Sequence[DataFile],
        added: Sequence[DataFile],
        transactions: Mapping[str, int] | None = None,
        data_change: bool = True,
        predicate: str = "",
    ) -> None:
        """Remove and add files in one commit, which also sets `transactions` to new versions.

        `data_change` False means that the rows are the same. `predicate` says which rows are
        removed, for the table's history. Raises RewriteConflict. Raises UnsupportedTable if rows
        would be removed from an append-only table, or if the table uses unsupported features.
        """
        # The versions before the commit, as of the version that was read.
        moves = [
            Move(name, self.handle.transaction_version(name), to)
            for name, to in (transactions or {}).items()
        ]
        found = self._writer.commit(
            Changes(added, removed, moves, data_change=data_change, predicate=predicate)
        )
        if not isinstance(found, int):
            raise RewriteConflict(self.handle.table_uri, f"its transactions are {dict(found)}")
        refresh(self.handle)
