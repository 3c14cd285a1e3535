"""Following a table: the rows that were appended since the last look.

A client that waits for its responses looks many times a second. A look is one attempt to open the
next commit, whatever the table's size and wherever it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSystem, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from pipeline.commit import local_folder, open_delta, parse_commit
from pipeline.store import table_uri

if TYPE_CHECKING:
    from schemas.tables import Table


def follow(root: str, table: Table, columns: Sequence[str]) -> Tail:
    """Follow a table from its present end, reading these columns (none of its partition columns).

    Raises deltalake's TableNotFoundError.
    """
    uri = table_uri(root, table)
    return Tail(open_files(uri), open_delta(uri).version(), columns)


def open_files(uri: str) -> FileSystem:
    """The file system of a table, with the table at its root."""
    folder = local_folder(uri)
    if folder is None:
        return PyFileSystem(DeltaStorageHandler(uri))
    return SubTreeFileSystem(str(folder), LocalFileSystem())


def read_commit(files: FileSystem, version: int) -> bytes | None:
    """The content of a table's commit, None if there is no such version yet."""
    try:
        with files.open_input_stream(f"_delta_log/{version:020}.json") as stream:
            return bytes(stream.read())
    except FileNotFoundError:
        return None


class Tail:
    """Yields what is appended to one table after `version`; `files` has the table at its root."""

    def __init__(self, files: FileSystem, version: int, columns: Sequence[str]) -> None:
        self._files = files
        self._version = version
        self._columns = list(columns)

    def poll(self) -> pa.Table | None:
        """Return the new rows, in the order of their commits; None if there are none."""
        found = []
        while (content := read_commit(self._files, self._version + 1)) is not None:
            self._version += 1
            actions = parse_commit(content)
            if any(action.remove is not None for action in actions):
                continue  # a rewrite: nothing in it is new
            for action in actions:
                if action.add is not None:
                    with self._files.open_input_file(action.add.path) as file:
                        found.append(pq.ParquetFile(file).read(columns=self._columns))
        return pa.concat_tables(found) if found else None
