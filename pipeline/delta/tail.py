"""Following a table: the rows that were appended since the last look.

A reader that waits for rows looks many times a second. A look is one attempt to open the next
commit, whatever the table's size and wherever it lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSystem, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from pipeline.delta.actions import parse_commit
from pipeline.delta.table import local_folder, open_delta


class Position(NamedTuple):
    """A reader's place among a table's appends: before this row group of this version's files."""

    version: int
    row_group: int = 0


def follow(uri: str, columns: Sequence[str]) -> Tail:
    """Follow a table from its present end, reading `columns`, none of them a partition column.

    Raises deltalake's TableNotFoundError.
    """
    return Tail(open_files(uri), open_delta(uri).version(), columns)


def open_files(uri: str) -> FileSystem:
    """Return the file system of a table, with the table at its root."""
    folder = local_folder(uri)
    if folder is None:
        return PyFileSystem(DeltaStorageHandler(uri))
    return SubTreeFileSystem(str(folder), LocalFileSystem())


def read_commit(files: FileSystem, version: int) -> bytes | None:
    """Return the content of a version's commit, None if there is no such version yet."""
    try:
        with files.open_input_stream(f"_delta_log/{version:020}.json") as stream:
            # No writer commits nothing: an empty file is one that is being written in place.
            return bytes(stream.read()) or None
    except FileNotFoundError:
        return None


def appended(
    files: FileSystem, start: Position, columns: Sequence[str], end: Position | None = None
) -> Iterator[tuple[pa.Table | None, Position]]:
    """Read what was appended from `start` up to `end`, or to the table's present end.

    Yields the rows of each row group with the position after it, and after the last row group of a
    version None with the position at the beginning of the next. A commit that removes files is a
    rewrite, and none of its rows is new. Columns that a file does not have are left out. Raises
    FileNotFoundError for a data file that is gone.
    """
    at = start
    while end is None or at < end:
        content = read_commit(files, at.version)
        if content is None:
            return
        for rows in _row_groups(files, content, columns, at.row_group):
            at = Position(at.version, at.row_group + 1)
            yield rows, at
            if at == end:
                return
        at = Position(at.version + 1)
        yield None, at


def _row_groups(
    files: FileSystem, content: bytes, columns: Sequence[str], first: int
) -> Iterator[pa.Table]:
    actions = parse_commit(content)
    if any(action.remove is not None for action in actions):
        return
    number = 0
    for action in actions:
        if action.add is None:
            continue
        with files.open_input_file(action.add.path) as file:
            parquet = pq.ParquetFile(file)
            for index in range(parquet.num_row_groups):
                if number >= first:
                    yield parquet.read_row_group(index, columns=list(columns))
                number += 1


class Tail:
    """Yields what is appended to one table after `version`; `files` has the table at its root."""

    def __init__(self, files: FileSystem, version: int, columns: Sequence[str]) -> None:
        self._files = files
        self._at = Position(version + 1)
        self._columns = list(columns)

    def poll(self) -> pa.Table | None:
        """Return the new rows, in the order of their commits; None if there are none."""
        found = []
        for rows, at in appended(self._files, self._at, self._columns):
            self._at = at
            if rows is not None:
                found.append(rows)
        return pa.concat_tables(found) if found else None
