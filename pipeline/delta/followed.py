"""Following a table, and what a reader knows of it: that and its place in the log move together.

A reader that waits for rows looks many times a second. A look is one attempt to open the next
commit, whatever the table's size and wherever it lies.

A read may fail at any moment. A reader whose place moves first passes over rows for good; one that
forgets first, and then reads anew, knows nothing meanwhile, and answers as if there were nothing.
So both are exchanged at once, when everything is read: after a read that failed the reader knows
what it knew, and the next look reads the same rows again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa

from group_coordinator.pipeline.delta.commit_reader import GoneCheck, RowsRemoved
from group_coordinator.pipeline.delta.identity import SameTable, TableReplacedError
from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.parquet_file import read_rows, read_whole
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.table import newest_version, open_delta
from group_coordinator.pipeline.delta.tail import Position, appended
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

log = logging.getLogger(__name__)

S = TypeVar("S")


def follow(uri: str, columns: Sequence[str], refuses_removals: bool = False) -> Tail:
    """Follow a table from its present end, reading `columns`, none of them a partition column.

    Raises deltalake's TableNotFoundError.
    """
    version = newest_version(uri)
    same = SameTable(uri, at=version)
    return Tail(open_files(uri), version, columns, same, refuses_removals)


class Tail:
    """Yields what is appended to one table after `version`; `files` has the table at its root.

    With `refuses_removals` a commit that removes rows raises RowsRemoved; otherwise it has none.
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
        """Return the new rows, in the order of their commits; None if there are none.

        They have the columns that some file of them has, null in rows of those that lack them. The
        tail is behind them only if this returns: after an error the next call reads them again.
        Raises LogGone if commits, or data files, that the tail has not read were deleted,
        TableReplacedError, TableAway and OSError.
        """
        rows, after = self.look()
        self._at = after._at
        return rows

    def look(self) -> tuple[pa.Table | None, Tail]:
        """Return what `poll` does, and the tail behind it; this one stays where it is."""
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


class Followed(Generic[S]):
    """A table as one reader knows it; for one thread.

    `take` makes what is known then of what was known before, None for nothing, and of rows: of new
    ones, or where it is told so of all. It leaves what was known before as it is, unless it never
    raises. Rows may be given to it twice: those that are committed while the table is read whole.
    `is_there` tells of a table that may be missing whether it is there by now.
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
        # Whether some `poll` succeeded: what is known is all there is, be it nothing.
        self.is_read = False
        # Whether the table is another one than that of which `known` tells.
        self.is_replaced = False
        self._held: tuple[Tail, S] | None = None

    @property
    def known(self) -> S | None:
        """What is known of the table as of the last `poll`; None where it was not there."""
        return None if self._held is None else self._held[1]

    def poll(self) -> bool:
        """Take in what is new; return whether there was anything. One attempt to open a file.

        The first call reads the whole table, and so does one that finds the log cleaned up beyond
        its place, or rows removed: then nothing of what was known before is left. A call that finds
        the table replaced raises TableReplacedError; the next one reads the new table, and raises
        again while that has no rows: it may be made just now.
        Raises deltalake's TableNotFoundError and DeltaError, OSError, TableAway, and what `take`
        raises: what is known is as before then.
        """
        found = (self._held is not None or self._is_there()) and self._read_on()
        self.is_read = True
        return found

    def _read_on(self) -> bool:
        before = self.known
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
        # The tail begins before the rows are read: what is committed between the two is read twice
        # instead of being missed.
        tail = follow(self._uri, self._columns, refuses_removals=True)
        handle = open_delta(self._uri)
        if tail.same is not None:
            tail.same.table_id = str(handle.metadata().id)
        rows = read_rows(handle, self._columns)
        # A table is made before its first row: it is unknown then, and not empty.
        if self.is_replaced and not rows.num_rows:
            raise Failure(f"{self._uri} was made anew and has no rows yet: nothing is known of it")
        self._held = tail, self._take(None if self.is_replaced else before, rows, True)
        self.is_replaced = False
        return True
