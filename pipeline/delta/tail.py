"""The rows that were appended to a table after a position in its log, on any store.

In a store each commit and each file is a request, and nearly all of its time is waiting. So
requests run concurrently: a commit's files are requested as soon as the commit is read, together
with the next commits. A reader that stops at a known version knows how many commits exist. A reader
of the whole log requests one commit after the last one found. It requests more only after it found
several, because a request for a missing commit costs as much.
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

# Selects the row groups of a file by its commit's version and its tags. None: the tags do not tell,
# so all row groups are wanted.
Wanted = Callable[[int, "Mapping[str, str | None] | None"], "Sequence[bool] | None"]


class Position(NamedTuple):
    """A reader's place among a table's appends: before this row of this row group of a version.

    The row groups of all files of the version are counted, in the order of its commit.
    """

    version: int
    row_group: int = 0
    row: int = 0


class RowGroups(NamedTuple):
    """Row groups of an open Parquet file, by their numbers, which ascend."""

    file: pa.NativeFile
    parquet: pq.ParquetFile
    numbers: Sequence[int]


# Reads these columns of row groups, from a row of the first one on, page by page.
ReadPages = Callable[[RowGroups, Sequence[str], int], Iterator[pa.Table]]

# Wanted row groups of one file are read at once up to this size, bytes, uncompressed: each read
# takes 0.3 ms of CPU, whatever its size.
_AT_ONCE_BYTES = 1 << 20


def whole_row_groups(groups: RowGroups, columns: Sequence[str], first: int) -> Iterator[pa.Table]:
    """Read row groups from a row of the first one on as one page."""
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

    Yields each page that `read` makes of row groups, with the position after it. After the last row
    group of a version it yields None with the position at the beginning of the next version. A
    commit that removes files is a rewrite, so it has no new rows. Columns that a file lacks are
    left out.

    Only the `wanted` row groups are read; the files of a commit without any are not opened. Tags
    with a number of row groups that the file does not have are ignored. A file or a row group that
    is certainly damaged has the rows that `substitute` makes. Without it, pyarrow's error is
    raised. Raises FileNotFoundError for a missing data file. With `refuses_removals` a commit that
    removes rows raises RowsRemoved.
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
                # The end was planned with pages of another size, which is allowed to change.
                yield rows.slice(0, end.row - before.row), end
                return
            at = after
            yield rows, at
            if at == end:
                return
        at = Position(at.version + 1)
        if end is not None and at > end:
            # The end was planned within a commit that is now skipped.
            at = end
        yield None, at


# A page, with the positions before and after it.
_Page = tuple[pa.Table, Position, Position]


class _Reading(NamedTuple):
    """The parameters for reading the files of one commit, from `start` on, perhaps up to `end`."""

    files: FileSystem
    columns: Sequence[str]
    start: Position
    end: Position | None
    read: ReadPages
    substitute: Substitute | None

    def pages(self, added: Sequence[NewFile]) -> Iterator[_Page]:
        """Yield the pages of the wanted row groups of each file."""
        number = 0
        for path, wanted, open_file in added:
            if self.substitute is not None and is_outside(path):
                if number >= self.start.row_group:
                    rows = self.substitute.for_file(path, OUTSIDE)
                    yield rows, self._at(number), self._at(number + 1)
                number += 1
                continue
            with open_file() as file:
                parquet = self._open(path, file)
                if isinstance(parquet, str):
                    assert self.substitute is not None
                    if number >= self.start.row_group:
                        rows = self.substitute.for_file(path, parquet)
                        yield rows, self._at(number), self._at(number + 1)
                    number += 1
                    continue
                for run in self._runs(parquet.metadata, wanted, number):
                    yield from self._run(path, RowGroups(file, parquet, run), number)
                number += parquet.num_row_groups

    def _open(self, path: str, file: pa.NativeFile) -> pq.ParquetFile | str:
        if self.substitute is None:
            return pq.ParquetFile(file)
        return open_parquet(self.files, path, file)

    def _at(self, number: int, row: int = 0) -> Position:
        return Position(self.start.version, number, row)

    def _runs(
        self, metadata: pq.FileMetaData, wanted: Sequence[bool] | None, before: int
    ) -> Iterator[list[int]]:
        """Yield the row groups that are read at once: one, or several small ones of a tagged file.

        `before` is the number of row groups in the files before this one.
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
        """Return whether reading begins within a row group, or may end within or before it."""
        if number == self.start.row_group and self.start.row:
            return True
        end = self.end
        return end is not None and end.version == self.start.version and number >= end.row_group

    def _run(self, path: str, groups: RowGroups, before: int) -> Iterator[_Page]:
        first = before + groups.numbers[0]
        at = self.start if first == self.start.row_group else self._at(first)
        yield from self._from(path, groups, before, at)

    def _from(self, path: str, groups: RowGroups, before: int, at: Position) -> Iterator[_Page]:
        """Yield the pages of row groups from a position in the first one on."""
        row = at.row
        try:
            for page in self.read(groups, self.columns, row):
                row += page.num_rows
                start, at = at, self._after(groups, before, row)
                yield page, start, at
        except UNREAD:
            file, parquet, numbers = groups
            if len(numbers) > 1:
                # One of them may be damaged, so those after `at` are read one by one.
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
        """The position before a row of the row groups, counted from the first one's first row."""
        for number in groups.numbers:
            count = groups.parquet.metadata.row_group(number).num_rows
            if row < count:
                return self._at(before + number, row)
            row -= count
        return self._at(before + groups.numbers[-1] + 1)


# --- the files of each commit --------------------------------------------------------------------

# The files of a commit are read ahead if their total size is at most this, bytes: they wait in
# memory.
_SMALL_BYTES = 1 << 20


class RowsRemoved(LogGone):
    """A commit that removed rows, such as DELETE, RESTORE or an overwrite."""


class NewFile(NamedTuple):
    """A file that a commit added, with its wanted row groups (None for all) and `open`.

    `open` may be called once, and raises FileNotFoundError if the file is gone.
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
    """Yield the wanted files of each commit from `version` to the last commit.

    A commit that removes files is a rewrite and yields no files. A commit without a wanted row
    group yields none either. `last`, if known, is the last version to request; it must exist. With
    `refuses_removals` a commit that removes rows raises RowsRemoved.
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
        # Request all commits that are known to exist, within the limit; otherwise at least one.
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
        raise RowsRemoved(f"version {version} has removed rows")
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
    """Return the thread pool that reads ahead, shared by all readers of the process."""
    return ThreadPoolExecutor(AT_ONCE, "read-ahead")
