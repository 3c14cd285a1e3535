"""The rows appended to a table after a position in its log, on any store.

In a store each commit and each file is a request, so requests run concurrently: a commit's files
are requested as soon as it is read, together with the next commits. If the last version is known,
all commits up to it are requested. Otherwise a reader requests one commit after the last one found,
and more once it has found several, because a request for a missing commit costs as much.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from group_coordinator.pipeline import background
from group_coordinator.pipeline.delta.commit import parse_commit
from group_coordinator.pipeline.delta.identity import read_commit
from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.parquet_file import (
    UNREAD,
    Substitute,
    open_parquet,
    why_undecodable,
)
from group_coordinator.pipeline.delta.store_files import AT_ONCE, is_in_store
from group_coordinator.pipeline.delta.table import OUTSIDE, is_outside

# Selects the row groups of a file, given its commit's version and its tags. None: all are read.
Wanted = Callable[[int, "Mapping[str, str | None] | None"], "Sequence[bool] | None"]


class Position(NamedTuple):
    """A position among a table's appended rows: before this row of this row group of a version.

    Row groups are numbered through all files of the version, in the order of its commit.
    """

    version: int
    row_group: int = 0
    row: int = 0


class RowGroups(NamedTuple):
    """Row groups of an open Parquet file, by ascending numbers."""

    file: pa.NativeFile
    parquet: pq.ParquetFile
    numbers: Sequence[int]


# Reads columns of row groups page by page. The last argument is the first row, counted from the
# start of the first row group.
ReadPages = Callable[[RowGroups, Sequence[str], int], Iterator[pa.Table]]

# Selected row groups of a file are read together up to this size, bytes, uncompressed. Each read
# takes 0.3 ms of CPU, whatever its size.
_AT_ONCE_BYTES = 1 << 20


def whole_row_groups(groups: RowGroups, columns: Sequence[str], first: int) -> Iterator[pa.Table]:
    """Read row groups as one page, from row `first` on (a `ReadPages`)."""
    yield groups.parquet.read_row_groups(groups.numbers, columns=list(columns)).slice(first)


def appended(
    files: FileSystem,
    start: Position,
    columns: Sequence[str],
    end: Position | None = None,
    read: ReadPages = whole_row_groups,
    substitute: Substitute | None = None,
    wanted: Wanted | None = None,
    refuses_removals: bool = False,
) -> Iterator[tuple[pa.Table | None, Position]]:
    """Read the rows that were appended from `start` up to `end`, or to the table's present end.

    Yields each page that `read` returns, with the position after it. After the last row group of a
    version it yields None, with the position at the beginning of the next version. A commit that
    removes files is a rewrite without new rows. If it removes rows and `refuses_removals`, this
    raises RowsRemoved. Columns that a file lacks are left out.

    `wanted` selects row groups; for a commit without a selected one no file is opened. A selection
    is ignored if its length is not the file's number of row groups. `substitute` provides the rows
    of a file or row group that is certainly damaged; without it pyarrow's error is raised. Raises
    FileNotFoundError for a missing data file.
    """
    at = start
    last = None if end is None else end.version if end > (end.version, 0, 0) else end.version - 1
    commits = new_files(files, at.version, wanted, last, refuses_removals)
    while end is None or at < end:
        added = next(commits, None)
        if added is None:
            return
        reading = _Reading(files, columns, at, end, read, substitute)
        for rows, before, after in reading.pages(added):
            if end is not None and after > end:
                # A page crosses `end`, which an earlier run planned with another page size.
                yield rows.slice(0, end.row - before.row), end
                return
            at = after
            yield rows, at
            if at == end:
                return
        at = Position(at.version + 1)
        if end is not None and at > end:
            # `end` lies in a commit that has no selected rows now.
            at = end
        yield None, at


# A page, with the positions before and after it.
_Page = tuple[pa.Table, Position, Position]


class _Reading(NamedTuple):
    """The arguments of `appended` for one commit; `start` is a position in it."""

    files: FileSystem
    columns: Sequence[str]
    start: Position
    end: Position | None
    read: ReadPages
    substitute: Substitute | None

    def pages(self, added: Sequence[NewFile]) -> Iterator[_Page]:
        """Yield the pages of each file's selected row groups."""
        number = 0
        for path, wanted, open_file in added:
            if self.substitute is not None and is_outside(path):
                if number >= self.start.row_group:
                    rows = self.substitute.for_file(path, OUTSIDE)
                    yield rows, self._at(number), self._at(number + 1)
                number += 1
                continue
            with open_file() as file:
                parquet = (
                    pq.ParquetFile(file)
                    if self.substitute is None
                    else open_parquet(self.files, path, file)
                )
                if isinstance(parquet, str):
                    assert self.substitute is not None
                    if number >= self.start.row_group:
                        rows = self.substitute.for_file(path, parquet)
                        yield rows, self._at(number), self._at(number + 1)
                    number += 1
                    continue
                for run in self._runs(parquet.metadata, wanted, number):
                    first = number + run[0]
                    at = self.start if first == self.start.row_group else self._at(first)
                    yield from self._from(path, RowGroups(file, parquet, run), number, at)
                number += parquet.num_row_groups

    def _at(self, number: int, row: int = 0) -> Position:
        return Position(self.start.version, number, row)

    def _runs(
        self, metadata: pq.FileMetaData, wanted: Sequence[bool] | None, before: int
    ) -> Iterator[list[int]]:
        """Yield lists of row groups to read together: one, or several small ones of a tagged file.

        `before` is the number of row groups in the earlier files of the commit.
        """
        count = metadata.num_row_groups
        if wanted is None or len(wanted) != count:
            yield from ([index] for index in range(count) if before + index >= self.start.row_group)
            return
        run: list[int] = []
        size = 0
        for index in range(count):
            if before + index < self.start.row_group or not wanted[index]:
                continue
            if self.end is not None and self._at(before + index) >= self.end:
                break
            added = metadata.row_group(index).total_byte_size
            alone = self._is_cut(before + index)
            if run and (alone or size + added > _AT_ONCE_BYTES):
                yield run
                run, size = [], 0
            run.append(index)
            size += added
            if alone:
                yield run
                run, size = [], 0
        if run:
            yield run

    def _is_cut(self, number: int) -> bool:
        """Return whether this row group is read alone: `start` or `end` may lie within it."""
        if number == self.start.row_group and self.start.row:
            return True
        end = self.end
        return end is not None and end.version == self.start.version and number >= end.row_group

    def _from(self, path: str, groups: RowGroups, before: int, at: Position) -> Iterator[_Page]:
        row = at.row
        try:
            for page in self.read(groups, self.columns, row):
                row += page.num_rows
                start, at = at, self._after(groups, before, row)
                yield page, start, at
        except UNREAD:
            file, parquet, numbers = groups
            if len(numbers) > 1:
                # One of them may be damaged: read those after `at` one by one.
                for number in numbers:
                    if before + number >= at.row_group:
                        one = RowGroups(file, parquet, [number])
                        is_first = before + number == at.row_group
                        begin = at if is_first else self._at(before + number)
                        yield from self._from(path, one, before, begin)
                return
            (number,) = numbers
            why = None
            if self.substitute is not None:
                why = why_undecodable(self.files, path, number, self.columns)
            if self.substitute is None or why is None:
                raise
            rows = self.substitute.for_row_group(self.files, path, number, at.row, why)
            yield rows, at, self._at(before + number + 1)

    def _after(self, groups: RowGroups, before: int, row: int) -> Position:
        """Return the position before a row, counted from the first row of the first row group."""
        for number in groups.numbers:
            count = groups.parquet.metadata.row_group(number).num_rows
            if row < count:
                return self._at(before + number, row)
            row -= count
        return self._at(before + groups.numbers[-1] + 1)


# --- the files of each commit --------------------------------------------------------------------

# The largest total size (bytes) of a commit's files that are read ahead: they wait in memory.
_SMALL_BYTES = 1 << 20


class RowsRemoved(LogGone):
    """A commit that removed rows, such as DELETE, RESTORE or an overwrite."""


class NewFile(NamedTuple):
    """A file that a commit added, with flags of its selected row groups (None: all).

    `open` may be called once. It raises FileNotFoundError if the file is gone.
    """

    path: str
    wanted: Sequence[bool] | None
    open: Callable[[], pa.NativeFile]


def new_files(
    files: FileSystem,
    version: int,
    wanted: Wanted | None,
    last: int | None = None,
    refuses_removals: bool = False,
) -> Iterator[list[NewFile]]:
    """Yield, for each commit from `version` on, the files with selected row groups.

    A commit yields [] if it removes files, as a rewrite does, or has no selected row group. `last`,
    if known, is the last version to request; it must exist. With `refuses_removals` a commit that
    removes rows raises RowsRemoved.
    """
    read = functools.partial(_new_of, files, wanted, refuses_removals)
    found: list[NewFile] | None = None
    if not is_in_store(files):
        while (found := read(version)) is not None:
            yield found
            version += 1
        return
    asking: deque[Future[list[NewFile] | None]] = deque()
    ask_next, count = version, 0
    while True:
        # Request all commits that certainly exist, up to AT_ONCE; otherwise at least one.
        most = max(1, count // 2) if last is None else last + 1 - ask_next + len(asking)
        while len(asking) < min(AT_ONCE, most):
            asking.append(background.submit(_beside(), functools.partial(read, ask_next)))
            ask_next += 1
        if found is not None:
            yield found
        found = asking.popleft().result() if asking else None
        if found is None:
            return
        count += 1


def _new_of(
    files: FileSystem, wanted: Wanted | None, refuses_removals: bool, version: int
) -> list[NewFile] | None:
    content = read_commit(files, version)
    if content is None:
        return None
    actions = parse_commit(content)
    removed = [action.remove for action in actions if action.remove is not None]
    if refuses_removals and any(each.data_change for each in removed):
        raise RowsRemoved(f"version {version} removed rows")
    if removed:
        return []
    adds = [action.add for action in actions if action.add is not None]
    flags = [None if wanted is None else wanted(version, add.tags) for add in adds]
    if all(each is not None and not any(each) for each in flags):
        return []
    sizes = [_SMALL_BYTES if add.size is None else add.size for add in adds]
    is_ahead = is_in_store(files) and sum(sizes) <= _SMALL_BYTES
    return [
        NewFile(add.file, each, _opener(files, add.file, is_ahead))
        for add, each in zip(adds, flags, strict=True)
    ]


def _opener(files: FileSystem, path: str, is_ahead: bool) -> Callable[[], pa.NativeFile]:
    opener: Callable[[], pa.NativeFile] = functools.partial(files.open_input_file, path)
    if is_ahead and not is_outside(path):
        return background.submit(_beside(), opener).result
    return opener


@functools.lru_cache(maxsize=1)
def _beside() -> ThreadPoolExecutor:
    """Return the thread pool for reading ahead, which all readers of the process share."""
    return ThreadPoolExecutor(AT_ONCE, "read-ahead")
