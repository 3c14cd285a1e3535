"""Tailing a table: the rows that each new commit appended, and none that upkeep moved about.

Reads the commits' own list of files, so that a compaction, which adds files without new rows, is
passed over. One tail per process and table is enough for any number of readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from msgspec import Struct
from pyarrow.fs import PyFileSystem

from pipeline.store import table_uri
from schemas.tables import Table


class _AddedFile(Struct):
    path: str
    dataChange: bool = True  # noqa: N815 (Delta's own name)


class _Action(Struct):
    add: _AddedFile | None = None
    remove: _AddedFile | None = None


_decode_action = msgspec.json.Decoder(_Action).decode


class Tail:
    """The rows appended to a table since its present version, or since `version`."""

    def __init__(
        self,
        root: str,
        table: Table,
        columns: Sequence[str] | None = None,
        version: int | None = None,
    ) -> None:
        uri = table_uri(root, table)
        self._handle = DeltaTable(uri)
        self._columns = None if columns is None else list(columns)
        self._schema = table.schema
        self._version = self._handle.version() if version is None else version
        self._files = PyFileSystem(DeltaStorageHandler(uri))

    def poll(self) -> pa.Table:
        """The rows of all commits since the last call, in the order of the commits."""
        self._handle.update_incremental()
        newest = self._handle.version()
        paths = [path for v in range(self._version + 1, newest + 1) for path in self._added(v)]
        self._version = newest
        parts = [
            pq.read_table(path, columns=self._columns, filesystem=self._files) for path in paths
        ]
        if parts:
            return pa.concat_tables(parts, promote_options="default")
        names = self._columns or self._schema.names
        return pa.schema([self._schema.field(name) for name in names]).empty_table()

    def _added(self, version: int) -> Iterator[str]:
        with self._files.open_input_stream(f"_delta_log/{version:020}.json") as stream:
            actions = [_decode_action(line) for line in stream.read().splitlines()]
        # A commit that also removes data is upkeep's: its rows have been seen before.
        if any(action.remove is not None for action in actions):
            return
        for action in actions:
            if action.add is not None and action.add.dataChange:
                yield action.add.path
