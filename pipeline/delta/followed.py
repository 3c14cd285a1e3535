"""What a reader knows of a table, and the place up to which it has read it: the two move together.

A read may fail at any moment. A reader whose place moves first passes over rows for good; one that
forgets first, and then reads anew, knows nothing meanwhile, and answers as if there were nothing.
So both are exchanged at once, when everything is read: after a read that failed the reader knows
what it knew, and the next look reads the same rows again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import pyarrow as pa

from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.parquet_file import read_whole
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.delta.tail import Tail, follow

log = logging.getLogger(__name__)

S = TypeVar("S")


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
        self._held: tuple[Tail, S] | None = None

    @property
    def known(self) -> S | None:
        """What is known of the table as of the last `poll`; None where it was not there."""
        return None if self._held is None else self._held[1]

    def poll(self) -> bool:
        """Take in what is new; return whether there was anything. One attempt to open a file.

        The first call reads the whole table, and so does one that finds the log cleaned up beyond
        its place. Raises deltalake's TableNotFoundError and DeltaError, OSError, and what `take`
        raises: what is known is as before then.
        """
        found = (self._held is not None or self._is_there()) and self._read_on()
        self.is_read = True
        return found

    def _read_on(self) -> bool:
        if self._held is not None:
            tail, known = self._held
            try:
                rows, after = tail.look()
            except LogGone:
                log.info("%s is read anew: its log was cleaned up meanwhile", self._uri)
            else:
                if rows is not None:
                    known = self._take(known, rows, False)
                self._held = after, known
                return rows is not None
        # The tail begins before the rows are read: what is committed between the two is read twice
        # instead of being missed.
        tail = follow(self._uri, self._columns)
        with read_whole(self._uri):
            rows = open_delta(self._uri).to_pyarrow_table(columns=self._columns)
        self._held = tail, self._take(self.known, rows, True)
        return True
