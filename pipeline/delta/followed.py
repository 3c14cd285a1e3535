"""Following a table: a reader's state of it, and its position in the log, change together.

A reader that waits for rows looks many times a second. A look is one attempt to open the next
commit, on any store and whatever the table's size.

A read may fail at any moment. A reader that advances its position first would skip rows forever. A
reader that clears its state before it reads the table again would answer meanwhile as if the table
were empty. So both are replaced at once, after everything is read. After a failed read the reader
keeps its state, and the next look reads the same rows again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa

from group_coordinator.pipeline.delta.identity import GoneCheck, SameTable, TableReplacedError
from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.parquet_file import read_rows, read_whole
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.table import newest_version, open_delta
from group_coordinator.pipeline.delta.tail import Position, RowsRemoved, appended
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

log = logging.getLogger(__name__)

S = TypeVar("S")


def follow(uri: str, columns: Sequence[str], refuses_removals: bool = False) -> TableTail:
    """Follow a table from its present end, reading `columns`; partition columns are not allowed.

    Raises deltalake's TableNotFoundError.
    """
    version = newest_version(uri)
    same = SameTable(uri, at=version)
    return TableTail(open_files(uri), version, columns, same, refuses_removals)


class TableTail:
    """A reader of the rows appended to one table after `version`; `files` has the table's root.

    With `refuses_removals` a commit that removes rows raises RowsRemoved; otherwise its rows are
    skipped.
    """

    def __init__(
        self,
        files: FileSystem,
        version: int,
        columns: Sequence[str],
        same: SameTable | None = None,
        refuses_removals: bool = False,
    ) -> None:
        self.same = same
        self._refuses_removals = refuses_removals
        self._files = files
        self._at = Position(version + 1)
        self._columns = list(columns)
        self._check_gone = GoneCheck(files, same)

    def poll(self) -> pa.Table | None:
        """Return the new rows, in the order of their commits; None if there are no new rows.

        The columns are those that any file of the rows has; they are null in rows of files that
        lack them. The tail advances only if this returns: after an error the next call reads the
        same rows again. Raises LogGone if commits or data files that the tail has not read were
        deleted. Raises TableReplacedError, TableAway and OSError.
        """
        rows, after = self.look()
        self._at = after._at
        return rows

    def look(self) -> tuple[pa.Table | None, TableTail]:
        """Return the rows of `poll`, and the tail after them; this tail does not advance."""
        found, at = [], self._at
        try:
            with read_whole("a data file"):
                for rows, after in appended(
                    self._files,
                    self._at,
                    self._columns,
                    refuses_removals=self._refuses_removals,
                ):
                    at = after
                    if rows is not None:
                        found.append(rows)
        except FileNotFoundError as error:
            raise LogGone(f"a data file of version {at.version} is gone: {error}") from error
        if not found:
            self._check_gone(at.version)
        behind = copy(self)
        behind._at = at
        return (pa.concat_tables(found, promote_options="default") if found else None), behind


class TableFollower(Generic[S]):
    """A table's state in one reader; for one thread.

    `take` returns the new state from the previous state (None at first) and rows. Its flag says
    whether the rows are the whole table; otherwise they are only the new rows. It must not modify
    the previous state, unless it never raises. It may receive rows twice: those committed during a
    read of the whole table. `is_there` returns whether the table exists; it is called until the
    first read succeeds.
    """

    def __init__(
        self,
        uri: str,
        columns: Sequence[str],
        take: Callable[[S | None, pa.Table, bool], S],
        is_there: Callable[[], bool],
    ) -> None:
        self._uri = uri
        self._columns = list(columns)
        self._take = take
        self._is_there = is_there
        # Whether any `poll` succeeded. Then `known` is complete, even if it is None.
        self.is_read = False
        # Whether the table was replaced, and `known` is the state of the old one.
        self.is_replaced = False
        self._held: tuple[TableTail, S] | None = None

    @property
    def known(self) -> S | None:
        """The state of the table as of the last `poll`; None if the table did not exist."""
        return None if self._held is None else self._held[1]

    def poll(self) -> bool:
        """Read new rows into the state; return whether there were any. One attempt to open a file.

        The first call reads the whole table. A call also reads the whole table if the log was
        cleaned up beyond the position, or if rows were removed. In the latter case the previous
        state is dropped.

        A call that finds the table replaced raises TableReplacedError. The next one reads the new
        table; it raises Failure while that table has no rows, since it may be under construction.
        Raises deltalake's TableNotFoundError and DeltaError, OSError, TableAway, and the errors of
        `take`. After an error the state is as before.
        """
        found = (self._held is not None or self._is_there()) and self._read_on()
        self.is_read = True
        return found

    def _read_on(self) -> bool:
        before = None if self.is_replaced else self.known
        if self._held is not None and not self.is_replaced:
            tail, known = self._held
            try:
                rows, after = tail.look()
            except RowsRemoved as removed:
                log.info("%s is read anew: %s", self._uri, removed)
                before = None
            except LogGone:
                log.info("%s is read anew: its log was cleaned up meanwhile", self._uri)
            except TableReplacedError:
                self.is_replaced = True
                raise
            else:
                if rows is not None:
                    known = self._take(known, rows, False)
                self._held = after, known
                return rows is not None
        # The tail begins before the rows are read. Rows committed in between are read twice instead
        # of being missed.
        tail = follow(self._uri, self._columns, refuses_removals=True)
        handle = open_delta(self._uri)
        if tail.same is not None:
            tail.same.table_id = str(handle.metadata().id)
        rows = read_rows(handle, self._columns)
        # A table is created before its first row. Until then its state is unknown, not empty.
        if self.is_replaced and not rows.num_rows:
            raise Failure(f"{self._uri} was made anew and has no rows yet: nothing is known of it")
        self._held = tail, self._take(before, rows, True)
        self.is_replaced = False
        return True
