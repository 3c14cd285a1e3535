"""Following a table: the rows that were appended since the last look.

A client that waits for its responses looks many times a second. On a local disk that is one attempt
to open the next commit, whatever the table's size; elsewhere delta-rs refreshes its view of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from pipeline.commit import local_folder, read_commit
from pipeline.store import table_uri

if TYPE_CHECKING:
    from schemas.tables import Table


class Tail(Protocol):
    """Yields what is appended to one table after it was opened."""

    def poll(self) -> pa.Table | None:
        """Return the new rows, in the order of their commits; None if there are none."""
        ...


def follow(root: str, table: Table, columns: Sequence[str]) -> Tail:
    """Follow a table from its present end, reading these columns, none of which partition it."""
    uri = table_uri(root, table)
    folder = local_folder(uri)
    names = list(columns)
    return RemoteTail(uri, names) if folder is None else LocalTail(folder, names)


class LocalTail:
    """Follows the commits of a table in a local folder."""

    def __init__(self, folder: Path, columns: list[str]) -> None:
        self._folder = folder
        self._columns = columns
        self._version = DeltaTable(str(folder)).version()

    def poll(self) -> pa.Table | None:
        """Return the new rows, in the order of their commits; None if there are none."""
        found = []
        while True:
            commit = self._folder / "_delta_log" / f"{self._version + 1:020}.json"
            try:
                actions = read_commit(commit)
            except FileNotFoundError:
                break
            self._version += 1
            if any(action.remove is not None for action in actions):
                continue  # a rewrite: nothing in it is new
            for action in actions:
                if action.add is not None:
                    path = self._folder / action.add.path
                    found.append(pq.ParquetFile(path).read(columns=self._columns))
        return pa.concat_tables(found) if found else None


class RemoteTail:
    """Follows a table through delta-rs."""

    def __init__(self, uri: str, columns: list[str]) -> None:
        self._handle = DeltaTable(uri)
        self._columns = columns
        self._seen = set(self._handle.file_uris())

    def poll(self) -> pa.Table | None:
        """Return the new rows; None if there are none."""
        before = self._handle.version()
        self._handle.update_incremental()
        if self._handle.version() == before:
            return None
        uris = self._handle.file_uris()
        dataset = self._handle.to_pyarrow_dataset()
        new = [
            fragment.to_table(columns=self._columns)
            for uri, fragment in zip(uris, dataset.get_fragments(), strict=True)
            if uri not in self._seen
        ]
        self._seen = set(uris)
        return pa.concat_tables(new) if new else None
