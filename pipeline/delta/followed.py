"""Followers of a table: they keep a state built from its rows, and a position in its log.

A poll without new commits is one attempt to open a file, whatever the table's size. State and
position are replaced together, after everything was read. So a failed poll skips no rows, and the
follower never answers as if the table were empty.
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
    """Return a tail at a table's present end that reads `columns`; no partition columns.

    Raises deltalake's TableNotFoundError.
    """
    version = newest_version(uri)
    same = SameTable(uri, at=version)
    return TableTail(open_files(uri), version, columns, same, refuses_removals)


class TableTail:
    """A reader of the rows appended to a table after `version`; `files` has the table at its root.

    With `refuses_removals` a commit that removes rows raises RowsRemoved; otherwise it is skipped.
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
        """Return the new rows in the order of their commits; None if there are none.

        The result has each column that any of the files has, with null for the rows of files
        without it. After an error the next call reads the same rows again. Raises LogGone if unread
        commits or data files were deleted. Raises TableReplacedError, TableAway and OSError.
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
            raise LogGone(f"a data file of version {at.version} was deleted: {error}") from error
        if not found:
            self._check_gone(at.version)
        behind = copy(self)
        behind._at = at
        return (pa.concat_tables(found, promote_options="default") if found else None), behind


class TableFollower(Generic[S]):
    """A state of type S that is kept up to date with a table; for one thread.

    `take(state, rows, is_whole)` returns the new state. `rows` are the whole table if `is_whole`,
    otherwise new rows. The first state is None. `take` must not modify the old state, unless it
    cannot raise. It may receive rows twice: those committed while the whole table is read.
    `is_there` returns whether the table exists; it is called until the first read succeeds.
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
        # Whether a `poll` succeeded. Then `known` is complete; None means that the table does not
        # exist.
        self.is_read = False
        # Whether the table was replaced and `known` is the state of the old one.
        self.is_replaced = False
        self._held: tuple[TableTail, S] | None = None

    @property
    def known(self) -> S | None:
        """The state as of the last `poll`; None if the table did not exist."""
        return None if self._held is None else self._held[1]

    def poll(self) -> bool:
        """Apply new rows to the state; return whether there were any. One attempt to open a file.

        The whole table is read by the first call, and after the log was cleaned up beyond the
        position or rows were removed. If rows were removed, `take` gets None instead of the old
        state.

        If the table was replaced, raises TableReplacedError. Later calls read the new table, and
        raise Failure while it has no rows, because it may still be under construction.

        Raises deltalake's TableNotFoundError and DeltaError, OSError, TableAway, and the errors of
        `take`. After an error the state is unchanged.
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
                log.info("%s is read completely again: %s", self._uri, removed)
                before = None
            except LogGone:
                log.info("%s is read completely again: its log was cleaned up", self._uri)
            except TableReplacedError:
                self.is_replaced = True
                raise
            else:
                if rows is not None:
                    known = self._take(known, rows, False)
                self._held = after, known
                return rows is not None
        # The tail begins before the rows are read: rows committed in between are read twice, not
        # missed.
        tail = follow(self._uri, self._columns, refuses_removals=True)
        handle = open_delta(self._uri)
        if tail.same is not None:
            tail.same.table_id = str(handle.metadata().id)
        rows = read_rows(handle, self._columns)
        # The replaced table may be created and not yet filled: its state is unknown, not empty.
        if self.is_replaced and not rows.num_rows:
            raise Failure(
                f"{self._uri} was created again and has no rows yet: its state is unknown"
            )
        self._held = tail, self._take(before, rows, True)
        self.is_replaced = False
        return True
