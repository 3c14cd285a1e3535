"""The files of a table, rewritten: DuckDB reads and writes them, one commit rewrites them.

DuckDB computes out of core, within a limit of memory and over a folder to spill to, so a rewrite of
any size needs no JVM. The commit names the very files that were read, and nothing else is read or
removed by it: an append beside it adds another file, so neither is ever in the other's way, on any
store. Only two rewrites of one table exclude each other, and the later one then changes nothing.

Elsewhere than on a local disk delta-rs commits, and the files are copied to the scratch folder and
back.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from pipeline.clock import clock_ms
from pipeline.delta.data_files import DataFile
from pipeline.delta.rewrite import Rewrite, commit_elsewhere, commit_locally
from pipeline.delta.table import has_features, local_folder, refresh
from pipeline.errors import Failure, first_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import DeltaTable, Transaction

# Rows of a row group: as many as a reader may have to hold at once.
_ROW_GROUP = 122_880


class Engine:
    """A DuckDB that keeps to a limit of memory and spills to the scratch folder."""

    def __init__(self, memory_bytes: int, threads: int, scratch: Path) -> None:
        self.scratch = scratch
        self._views: dict[str, tuple[TableFiles, Sequence[DataFile]]] = {}
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": f"{memory_bytes >> 20}MiB",
                "threads": threads,
                "temp_directory": str(scratch / "spill"),
                "autoinstall_known_extensions": False,
            },
        )

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def show(self, view: str, table: TableFiles, files: Sequence[DataFile]) -> None:
        """Show the rows of the files as a view, with all but the table's partition columns."""
        self._views[view] = (table, files)
        self._define(view, by_name=False)

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows; raises Failure with the engine's own words."""
        try:
            try:
                return self._connection.execute(sql).fetchall()
            except duckdb.InvalidInputException:
                # A file lacks a column that its table was given later. To allow for that costs
                # 150 kB of memory a file, and of small files there are tens of thousands.
                for view in self._views:
                    self._define(view, by_name=True)
                return self._connection.execute(sql).fetchall()
        except duckdb.Error as error:
            raise Failure(f"upkeep: {first_line(error)}") from error

    def _define(self, view: str, by_name: bool) -> None:
        table, files = self._views[view]
        self._connection.execute(
            f"CREATE OR REPLACE TEMP VIEW {view} AS {table.rows(files, by_name)}"
        )


class TableFiles:
    """One version of a table, whose files are read, written and rewritten."""

    def __init__(self, handle: DeltaTable, scratch: Path) -> None:
        self.handle = handle
        self._scratch = scratch
        self._folder = local_folder(handle.table_uri)
        # Where the log may be written here; a commit to a table with features would need more.
        local = self._folder is not None and not has_features(handle)
        self._log = self._folder / "_delta_log" if local else None
        self._partition_by: list[str] = list(handle.metadata().partition_columns)
        schema = pa.schema(handle.schema().to_arrow())
        fields = [field for field in schema if field.name not in self._partition_by]
        self.columns = [field.name for field in fields]
        # Read before the others, it gives every column its type, also where files lack it.
        self._template = scratch / f"{uuid.uuid4()}.parquet"
        pq.write_table(pa.schema(fields).empty_table(), self._template)

    def rows(self, files: Sequence[DataFile], by_name: bool) -> str:
        """Return the SQL that reads the files; `by_name` also those that lack a column."""
        paths = [str(self._template), *(self._local(file) for file in files)]
        listed = ", ".join(map(quoted, paths))
        names = ", ".join(f'"{name}"' for name in self.columns)
        options = f"hive_partitioning = false, union_by_name = {str(by_name).lower()}"
        return f"SELECT {names} FROM read_parquet([{listed}], {options})"

    def write(
        self,
        engine: Engine,
        query: str,
        partition: Mapping[str, str] | None = None,
        modified_ms: int | None = None,
    ) -> DataFile | None:
        """Write the query's rows as one file, not yet part of the table; None if there are none.

        `modified_ms` null is now.
        """
        values = dict(partition or {})
        folder = "".join(f"{name}={value}/" for name, value in values.items())
        path = f"{folder}part-{uuid.uuid4()}.zstd.parquet"
        target = (self._folder or self._scratch) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        ((records,),) = engine.run(
            f"COPY ({query}) TO {quoted(str(target))} "
            f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROW_GROUP})"
        )
        size = target.stat().st_size
        if not records:
            target.unlink()
            return None
        if self._folder is None:
            self._copy(target, path, upload=True)
            target.unlink()
        now_ms = clock_ms()
        return DataFile(path, size, modified_ms or now_ms, records, dict(values))

    def rewrite(
        self,
        removed: Sequence[DataFile],
        added: Sequence[DataFile],
        transaction: Transaction | None = None,
        data_change: bool = True,
    ) -> None:
        """Commit the removal of files and the addition of others, at once.

        `data_change` False says that the rows are the same. Raises RewriteConflict.
        """
        rewrite = Rewrite(removed, added, transaction, data_change)
        if self._log is not None and rewrite.is_plain:
            commit_locally(self._log, self.handle.version(), rewrite)
        else:
            commit_elsewhere(self.handle, rewrite)
        refresh(self.handle)

    def _local(self, file: DataFile) -> str:
        """Return where DuckDB finds the file."""
        if self._folder is not None:
            return str(self._folder / file.path)
        target = self._scratch / "read" / file.path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            self._copy(target, file.path, upload=False)
        return str(target)

    def _copy(self, local: Path, path: str, upload: bool) -> None:
        store = fs.PyFileSystem(DeltaStorageHandler.from_table(self.handle._table))
        here = fs.LocalFileSystem()
        if upload:
            fs.copy_files(str(local), path, source_filesystem=here, destination_filesystem=store)
        else:
            fs.copy_files(path, str(local), source_filesystem=store, destination_filesystem=here)


def quoted(text: str) -> str:
    """Return the string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
