"""Following a table: the rows that were appended since the last look.

A reader that waits for rows looks many times a second. A look is one attempt to open the next
commit, whatever the table's size and wherever it lies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, PyFileSystem

from pipeline.delta.actions import AddedFile, parse_commit
from pipeline.delta.commit_reader import GoneCheck, open_files, read_commit
from pipeline.delta.log import LogGone
from pipeline.delta.parquet_file import UNREAD, Substitute, open_parquet, why_undecodable
from pipeline.delta.table import newest_version


class Position(NamedTuple):
    """A reader's place among a table's appends: before this row of this row group of a version.

    The row groups of all files of the version are counted, in the order of its commit.
    """

    version: int
    row_group: int = 0
    row: int = 0


class RowGroup(NamedTuple):
    """A row group of an open Parquet file."""

    file: pa.NativeFile
    parquet: pq.ParquetFile
    number: int


# Reads these columns of a row group, from a row on, page by page.
ReadPages = Callable[[RowGroup, Sequence[str], int], Iterator[pa.Table]]
# Whether nothing is wanted of a file, by its commit's version and its tags.
PassesOver = Callable[[int, "Mapping[str, str | None] | None"], bool]


def follow(uri: str, columns: Sequence[str]) -> Tail:
    """Follow a table from its present end, reading `columns`, none of them a partition column.

    Raises deltalake's TableNotFoundError.
    """
    return Tail(open_files(uri), newest_version(uri), columns)


def whole_row_group(group: RowGroup, columns: Sequence[str], first: int) -> Iterator[pa.Table]:
    """Read a row group from a row on as one page."""
    yield group.parquet.read_row_group(group.number, columns=list(columns)).slice(first)


def appended(
    files: FileSystem,
    start: Position,
    columns: Sequence[str],
    end: Position | None = None,
    read: ReadPages = whole_row_group,
    substitute: Substitute | None = None,
    passes_over: PassesOver | None = None,
) -> Iterator[tuple[pa.Table | None, Position]]:
    """Read what was appended from `start` up to `end`, or to the table's present end.

    Yields the pages that `read` makes of each row group with the position after each, and after the
    last row group of a version None with the position at the beginning of the next. A commit that
    removes files is a rewrite, and none of its rows is new. Columns that a file does not have are
    left out. Raises FileNotFoundError for a data file that is gone. A file or a row group that is
    certainly damaged has the rows that `substitute` makes; without it, pyarrow's error is raised.
    A commit all of whose files `passes_over` has no rows, and its files are not opened.
    """
    at = start
    ahead: Future[bytes | None] | None = None
    while end is None or at < end:
        content = read_commit(files, at.version) if ahead is None else ahead.result()
        if content is None:
            return
        if isinstance(files, PyFileSystem):
            # In a store a commit takes as long to read as its file: so both are read at once.
            ahead = _beside().submit(read_commit, files, at.version + 1)
        actions = parse_commit(content)
        adds = [action.add for action in actions if action.add is not None]
        is_rewrite = any(action.remove is not None for action in actions)
        if is_rewrite or (
            passes_over is not None and all(passes_over(at.version, add.tags) for add in adds)
        ):
            adds = []
        for rows, before, after in _pages(files, adds, columns, at, read, substitute):
            if end is not None and after > end:
                # It was read by another release, which cut its pages otherwise.
                yield rows.slice(0, end.row - before.row), end
                return
            at = after
            yield rows, at
            if at == end:
                return
        at = Position(at.version + 1)
        if end is not None and at > end:
            # Another release planned to read a part of a commit that is passed over.
            at = end
        yield None, at


@functools.lru_cache(maxsize=1)
def _beside() -> ThreadPoolExecutor:
    """The threads that read ahead, of all tails of the process."""
    return ThreadPoolExecutor(4, "read-ahead")


def _pages(
    files: FileSystem,
    adds: Sequence[AddedFile],
    columns: Sequence[str],
    start: Position,
    read: ReadPages,
    substitute: Substitute | None,
) -> Iterator[tuple[pa.Table, Position, Position]]:
    """The pages of a commit's files from `start` on, with the positions before and after each."""
    number = 0
    for path in (add.path for add in adds):
        with files.open_input_file(path) as file:
            parquet = (
                pq.ParquetFile(file) if substitute is None else open_parquet(files, path, file)
            )
            if isinstance(parquet, str):
                assert substitute is not None
                if number >= start.row_group:
                    before, after = (Position(start.version, each) for each in (number, number + 1))
                    yield substitute.for_file(path, parquet), before, after
                number += 1
                continue
            for index in range(parquet.num_row_groups):
                if number >= start.row_group:
                    at = start if number == start.row_group else Position(start.version, number)
                    ends = parquet.metadata.row_group(index).num_rows
                    try:
                        for page in read(RowGroup(file, parquet, index), columns, at.row):
                            before, row = at, at.row + page.num_rows
                            at = at._replace(row=row)
                            if row == ends:
                                at = Position(start.version, number + 1)
                            yield page, before, at
                    except UNREAD:
                        why = None
                        if substitute is not None:
                            why = why_undecodable(files, path, index, columns)
                        if substitute is None or why is None:
                            raise
                        rows = substitute.for_row_group(files, path, index, at.row, why)
                        yield rows, at, Position(start.version, number + 1)
                number += 1


class Tail:
    """Yields what is appended to one table after `version`; `files` has the table at its root."""

    def __init__(self, files: FileSystem, version: int, columns: Sequence[str]) -> None:
        self._files = files
        self._at = Position(version + 1)
        self._columns = list(columns)
        self._check_gone = GoneCheck(files)

    def poll(self) -> pa.Table | None:
        """Return the new rows, in the order of their commits; None if there are none.

        Raises LogGone if commits, or data files, that the tail has not read were deleted. Rows that
        were read before are then lost to the caller, too: whoever goes on reads the table.
        """
        found = []
        try:
            for rows, at in appended(self._files, self._at, self._columns):
                self._at = at
                if rows is not None:
                    found.append(rows)
        except FileNotFoundError as error:
            raise LogGone(f"a data file of version {self._at.version} is gone: {error}") from error
        if found:
            return pa.concat_tables(found)
        self._check_gone(self._at.version)
        return None
