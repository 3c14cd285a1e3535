"""Counters of answers, offset commits and rebalances since the process began to count.

They cannot be computed from the tables, because retention deletes rows, and a counter must not
decrease.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import TableNotFoundError

from group_coordinator.pipeline.delta import (
    GoneCheck,
    LogGone,
    Position,
    SameTable,
    TableReplacedError,
    appended,
    commit_time_s,
    open_delta,
    open_files,
)
from group_coordinator.pipeline.tables import table_uri
from group_coordinator.schemas.tables import GROUP_EVENTS, OFFSETS_TOPIC, RESPONSES, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

log = logging.getLogger(__name__)

# The histogram's upper bounds of a batch's time, s.
BATCH_BOUNDS_S = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_MILLIS = pa.timestamp("ms", "UTC")


class _Follower:
    """A tail of one table: the rows appended since the follower was created, commit by commit."""

    def __init__(self, uri: str, columns: Sequence[str]) -> None:
        self._uri = uri
        self._columns = columns
        self._at = Position(open_delta(uri).version() + 1)
        self._files = open_files(uri)
        self._check_gone = GoneCheck(self._files, SameTable(uri, at=self._at.version - 1))

    def poll(self) -> Iterator[tuple[pa.Table, float]]:
        """Yield the new rows of each commit, with its time in seconds since 1970-01-01 UTC.

        Raises LogGone if the log or a data file was deleted before it was read, TableReplacedError
        if another table took the place of this one.
        """
        try:
            for rows, at in appended(self._files, self._at, self._columns):
                version, self._at = self._at.version, at
                if rows is not None:
                    yield rows, commit_time_s(self._files, version)
        except FileNotFoundError as error:
            raise LogGone(f"a data file of version {self._at.version} is gone: {error}") from error
        self._check_gone(self._at.version)


class Traffic:
    """Counters that begin at the first poll. A missing table has no rows. Not thread-safe.

    A batch's time runs from its decisions, by the coordinator's clock, to the modification time of
    the commit of its answers.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._followers: dict[str, _Follower] = {}
        self.answers: Counter[tuple[str, str]] = Counter()
        self.commits: Counter[str] = Counter()
        self.rebalances = 0
        self.batches = [0] * (len(BATCH_BOUNDS_S) + 1)
        self.batch_seconds = 0.0

    def poll(self) -> None:
        """Count rows added since the last call. Raises OSError and deltalake's DeltaError."""
        for rows, committed_s in self._new(RESPONSES, "api", "error", "responded_at"):
            self._count_answers(rows, committed_s)
        for rows, _ in self._new(GROUP_EVENTS, "event", "to_state"):
            is_begun = pc.and_(
                pc.equal(rows.column("event"), "transition"),
                pc.equal(rows.column("to_state"), "PreparingRebalance"),
            )
            self.rebalances += rows.filter(is_begun).num_rows
        for rows, _ in self._new(OFFSETS_TOPIC, "record_type", "group_id", "offset_commit"):
            is_commit = pc.and_(
                pc.equal(rows.column("record_type"), "offset_commit"),
                pc.is_valid(rows.column("offset_commit")),
            )
            for each in rows.filter(is_commit).column("group_id").value_counts().to_pylist():
                self.commits[each["values"]] += each["counts"]

    def _new(self, table: Table, *columns: str) -> Iterator[tuple[pa.Table, float]]:
        follower = self._followers.get(table.name)
        try:
            if follower is None:
                uri = table_uri(self._root, table)
                self._followers[table.name] = _Follower(uri, columns)
                return
            yield from follower.poll()
        except TableNotFoundError:
            return
        except (LogGone, TableReplacedError) as error:
            log.warning("metrics: some rows of %s were not counted: %s", table.name, error)
            del self._followers[table.name]

    def _count_answers(self, rows: pa.Table, committed_s: float) -> None:
        grouped = rows.group_by(["api", "error"]).aggregate([([], "count_all")])
        for row in grouped.to_pylist():
            self.answers[row["api"] or "", row["error"] or ""] += row["count_all"]
        decided = pc.max(rows.column("responded_at").cast(_MILLIS, safe=False).cast(pa.int64()))
        if decided.as_py() is not None:
            seconds = max(0.0, committed_s - decided.as_py() / 1000)
            self.batch_seconds += seconds
            place = sum(bound < seconds for bound in BATCH_BOUNDS_S)
            self.batches[place] += 1
