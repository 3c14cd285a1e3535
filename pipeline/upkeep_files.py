"""The files of a table, rewritten: DuckDB reads and writes them, delta-rs commits the exchange.

DuckDB computes out of core, within a limit of memory and over a folder to spill to, so a rewrite of
any size needs no JVM. The commit names the very files that were read, and nothing else is read or
removed by it: an append beside it adds another file, so neither is ever in the other's way, on any
store. Only two rewrites of one table exclude each other, and the later one then changes nothing.

Elsewhere than on a local disk the files are copied to the scratch folder and back.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from msgspec import Struct
from pyarrow import fs

from pipeline.clock import clock_ms
from pipeline.delta import local_folder, refresh
from pipeline.errors import Failure
from pipeline.store import retention_properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import DeltaTable

# Rows of a row group: as many as a reader may have to hold at once.
_ROW_GROUP = 122_880
# A commit loses to each append that comes first. With delta-rs' 15 attempts, 3 of 56 rewrites
# beside 40 appends a second were given up.
_COMMIT_RETRIES = 1_000


class RewriteConflict(Failure):
    """Another process rewrote the table meanwhile; of this rewrite nothing is to be seen."""


class DataFile(Struct, frozen=True):
    """One Parquet file of a table. `modified_ms` is when the newest of its rows was written."""

    path: str
    size: int
    modified_ms: int
    records: int | None
    partition: dict[str, str | None] = {}


def data_files(handle: DeltaTable) -> list[DataFile]:
    """Return the files of the handle's version, oldest first. Reads the table's log only."""
    actions = pa.table(handle.get_add_actions())
    columns = actions.select(["path", "size_bytes", "num_records"]).to_pydict()
    modified = actions.column("modification_time").cast(pa.int64()).to_pylist()
    if "partition" in actions.column_names:
        partitions = actions.column("partition").to_pylist()
    else:
        partitions = [{}] * actions.num_rows
    found = [
        DataFile(
            path,
            size,
            modified_ms,
            records,
            {name: None if value is None else str(value) for name, value in partition.items()},
        )
        for path, size, records, modified_ms, partition in zip(
            *(columns[name] for name in ("path", "size_bytes", "num_records")),
            modified,
            partitions,
            strict=True,
        )
    ]
    return sorted(found, key=lambda file: (file.modified_ms, file.path))


def count_records(files: Sequence[DataFile]) -> int:
    """Return the rows of the files; a file whose commit does not say counts as none."""
    return sum(file.records or 0 for file in files)


def count_bytes(files: Sequence[DataFile]) -> int:
    """Return the size of the files."""
    return sum(file.size for file in files)


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
            raise Failure(f"upkeep: {one_line(error)}") from error

    def _define(self, view: str, by_name: bool) -> None:
        table, files = self._views[view]
        self._connection.execute(
            f"CREATE OR REPLACE TEMP VIEW {view} AS {table.rows(files, by_name)}"
        )


class TableFiles:
    """One version of a table, whose files are read, written and exchanged."""

    def __init__(self, handle: DeltaTable, scratch: Path) -> None:
        self.handle = handle
        self._scratch = scratch
        self._folder = local_folder(handle.table_uri)
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
        listed = ", ".join(map(_quoted, paths))
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
            f"COPY ({query}) TO {_quoted(str(target))} "
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

    def exchange(
        self,
        removed: Sequence[DataFile],
        added: Sequence[DataFile],
        transaction: Transaction | None = None,
        data_change: bool = True,
    ) -> None:
        """Commit the removal of files and the addition of others, at once.

        `data_change` False says that the rows are the same. Raises RewriteConflict.
        """
        now_ms = clock_ms()
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(
                path=file.path,
                data_change=data_change,
                deletion_timestamp=now_ms,
                size=file.size,
                partition_values=file.partition,
            )
            for file in removed
        ]
        actions += [
            AddAction(
                path=file.path,
                size=file.size,
                partition_values=file.partition,
                modification_time=file.modified_ms,
                data_change=data_change,
                stats=msgspec.json.encode({"numRecords": file.records}).decode(),
            )
            for file in added
        ]
        try:
            self.handle.create_write_transaction(
                actions,
                "append",
                self.handle.schema(),
                self._partition_by,
                commit_properties=_patient(transaction),
            )
        except CommitFailedError as error:
            raise RewriteConflict(
                f"{self.handle.table_uri} was rewritten by another process meanwhile: "
                f"{one_line(error)}"
            ) from error
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


def vacuum(handle: DeltaTable, name: str, retention_hours: int) -> int:
    """Delete the files that no version of the last `retention_hours` needs; return how many.

    Those that a rewrite left behind when it was killed are among them. The table, `name`, is to
    name removed files for as long; an earlier release's is told so.
    """
    refresh(handle)
    wanted = retention_properties(name, retention_hours)
    if not wanted.items() <= handle.metadata().configuration.items():
        handle.alter.set_table_properties(wanted, commit_properties=_patient())
    options: dict[str, Any] = {
        "retention_hours": retention_hours,
        "enforce_retention_duration": False,
        "full": True,
    }
    # A vacuum is two commits, and a table that is at rest shall stay as it is.
    if not handle.vacuum(dry_run=True, **options):
        return 0
    return len(handle.vacuum(dry_run=False, commit_properties=_patient(), **options))


def _patient(transaction: Transaction | None = None) -> CommitProperties:
    """A commit that is tried again for as long as appends come first."""
    transactions = None if transaction is None else [transaction]
    return CommitProperties(max_commit_retries=_COMMIT_RETRIES, app_transactions=transactions)


def one_line(error: Exception) -> str:
    """Return what an error says first; delta-rs appends a stack."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
