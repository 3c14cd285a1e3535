"""Appending to a table: one Parquet file in one commit, at most once per (application, version).

An application is a name in Delta's transaction identifiers, such as the id of a streaming query;
its versions rise with each append, like the query's batch ids.

A crash of the process never undoes a commit. A power loss may undo the latest ones unless the
appender is `flushed`, as with a Kafka broker's default settings, or leave a commit with an empty
file (`pipeline.delta.torn`).

An epoch fences earlier processes of a node: it rises with each start of the node. Each table that
nodes write records every node's latest epoch, and refuses appends of an earlier one, as Kafka's
leader epoch does.
"""

from __future__ import annotations

import functools
import logging
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from group_coordinator.pipeline import background
from group_coordinator.pipeline.clock import Freshness
from group_coordinator.pipeline.delta.commit import Bound, Changes, Move, streaming_update
from group_coordinator.pipeline.delta.data_file import (
    COMMITTABLE_S,
    DataFile,
    LayOut,
    Layout,
    write_rows,
)
from group_coordinator.pipeline.delta.identity import SameTable, check_not_restored
from group_coordinator.pipeline.delta.log import LogGone, open_log
from group_coordinator.pipeline.delta.protocol import check_writable
from group_coordinator.pipeline.delta.table import open_store
from group_coordinator.pipeline.delta.writer import TooOld, Writer
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa


log = logging.getLogger(__name__)


@functools.lru_cache(maxsize=1)
def _beside() -> ThreadPoolExecutor:
    """Return the thread pool for writing files ahead, which all appenders of the process share."""
    return ThreadPoolExecutor(4, "write-ahead")


class Epoch(msgspec.Struct, frozen=True):
    """One run of a node: the node's id, and a number that rises with each start of the node.

    A table records a node's latest epoch as the version of the transaction identifier `app_id`.
    """

    node_id: int
    number: int

    @property
    def app_id(self) -> str:
        """The transaction identifier that has the node's latest epoch as its version."""
        return f"coordinator-epoch-{self.node_id}"

    def check(self, table: str, latest: int | None) -> None:
        """Raise FencedError if `latest`, the epoch that the table records, is higher."""
        if latest is not None and latest > self.number:
            raise FencedError(table, self, latest)


class FencedError(Failure):
    """A later run of the node has taken over: this process may not write any more."""

    def __init__(self, table: str, mine: Epoch, latest: int) -> None:
        super().__init__(
            f"fenced: epoch {latest} of node {mine.node_id} has taken over, so this process, of "
            f"epoch {mine.number}, may not write to {table} any more"
        )


class Appender:
    """An appender to one existing table; for one thread.

    With an `epoch` it appends only while the table records no later epoch of that node. With
    `flushed` an append to a disk survives a power loss. `lay_out` converts rows to a file's layout.
    With `ends_by_restore` a RESTORE by another process counts as a replacement of the table. Once
    the table is replaced, each append raises TableReplacedError. With `is_sink` the applications
    are streaming queries, and the table's history names them and their batches.

    The constructor raises deltalake's TableNotFoundError. It and all appends raise UnsupportedTable
    for table features that this package does not write (`pipeline.delta.protocol`).
    """

    def __init__(
        self,
        uri: str | Path,
        epoch: Epoch | None = None,
        flushed: bool = False,
        lay_out: LayOut = Layout,
        ends_by_restore: bool = False,
        is_sink: bool = False,
    ) -> None:
        self._is_sink = is_sink
        self._uri = str(uri)
        self._epoch = epoch
        self._flushed = flushed
        self._lay_out = lay_out
        self._writer = Writer(self._uri, flushed, ends_by_restore)
        self._store = open_store(self._uri)
        self._ahead: tuple[pa.Table, Future[DataFile], Freshness] | None = None
        check_writable(self._uri, self._writer.snapshot.features)

    def append(self, rows: pa.Table | None, app_id: str | None = None, version: int = 0) -> bool:
        """Append in one commit; return False if the application has reached this version already.

        With `rows` None the commit only records the application's version.

        Raises AppendConflict if other writers win every attempt. Raises FencedError if the table
        records a later epoch. Raises CommitStateUnknown if the append may or may not be in the
        table; repeating it with the same application and version never writes it twice. Raises
        NotFlushed, now and from then on.
        """
        while True:
            try:
                return self._append(rows, app_id, version)
            except TooOld as error:
                log.warning("%s: its rows are written to a new file", error)

    def write_ahead(self, rows: pa.Table) -> None:
        """Start to write the file of the next append's rows, if the store is remote.

        The file stays for VACUUM if that append finds its version already written.
        """
        if self._store.costs.is_remote:
            begun = Freshness.seen_now()
            self._ahead = rows, background.submit(_beside(), partial(self._write, rows)), begun

    def commit_files(
        self,
        files: Sequence[DataFile],
        moves: Mapping[str, tuple[int | None, int]],
        batch: tuple[str, int] | None = None,
    ) -> bool:
        """Commit files that other processes have written; return False if the versions forbid it.

        `moves` maps each transaction identifier to its version before the commit, as `versions`
        returns it, and after the commit. `batch` has the id of the streaming query that has written
        the files and the number of its batch, for the table's history. The files stay, whatever
        happens. Raises TooOld if VACUUM may have deleted one of them. Raises AppendConflict,
        CommitStateUnknown and NotFlushed for the reasons that `append` gives.
        """
        steady, _ = Freshness.now()
        begun = Freshness()
        begun.renew((steady, min(file.modified_ms for file in files)))
        moved = [Move(name, *versions) for name, versions in moves.items()]
        operation = None if batch is None else streaming_update(*batch)
        changes = Changes(files, moves=moved, operation=operation)
        return isinstance(self._writer.commit(changes, begun), int)

    def versions(self, app_ids: Sequence[str]) -> Mapping[str, int | None]:
        """Read the other writers' commits; return the applications' versions, None if not set."""
        self.forget()
        return self._writer.versions([*app_ids])

    def last_version(self, app_id: str) -> int:
        """Return the last version that the application wrote, -1 if none."""
        return self._writer.snapshot.last_version(app_id)

    @property
    def may_be_committed(self) -> bool:
        """Whether the table has, or may have, the changes of the last commit."""
        return self._writer.may_be_committed

    def forget(self) -> None:
        """Read the commits of other writers, also those under this appender's applications."""
        self._writer.snapshot.follow()

    @property
    def table_id(self) -> str | None:
        """The table's id (`metaData.id`)."""
        return (self._writer.snapshot.state.meta_data or {}).get("id")

    @property
    def version(self) -> int:
        """The newest version that this appender has read or written."""
        return self._writer.snapshot.state.version

    def file_paths(self) -> Collection[str] | None:
        """Return the paths of the table's files as of the last read.

        None if the table uses features that make its files differ from its rows: only delta-rs can
        read it.
        """
        snapshot = self._writer.snapshot
        return None if snapshot.features else snapshot.state.files.keys()

    def _append(self, rows: pa.Table | None, app_id: str | None, version: int) -> bool:
        found = self._writer.versions([] if app_id is None else [app_id])
        if _is_written(found, app_id, version):
            return False
        begun = Freshness.seen_now()
        added = [] if rows is None else [self._file(rows)]
        self._writer.may_be_committed = False
        try:
            while True:
                changes = self._changes(added, app_id, version, found)
                committed = self._writer.commit(changes, begun)
                if isinstance(committed, int):
                    return True
                found = committed
                if self._epoch is not None:
                    self._epoch.check(self._uri, found[self._epoch.app_id])
                if _is_written(found, app_id, version):
                    return False
        finally:
            # The file must stay while the commit may be in the table. If it is deleted too late,
            # VACUUM does so.
            if not self._writer.may_be_committed:
                self._store.delete([file.path for file in added])

    def _changes(
        self,
        added: list[DataFile],
        app_id: str | None,
        version: int,
        found: Mapping[str, int | None],
    ) -> Changes:
        moves = [] if app_id is None else [Move(app_id, found[app_id], version)]
        bounds = [] if self._epoch is None else [Bound(self._epoch.app_id, self._epoch.number)]
        operation = None
        if self._is_sink and app_id is not None:
            operation = streaming_update(app_id, version)
        return Changes(added, moves=moves, bounds=bounds, operation=operation)

    def _file(self, rows: pa.Table) -> DataFile:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] is rows and ahead[2].is_within(COMMITTABLE_S / 2):
            return ahead[1].result()
        return self._write(rows)

    def _write(self, rows: pa.Table) -> DataFile:
        names = self._writer.snapshot.state.partition_by
        values = {name: str(rows.column(name)[0].as_py()) for name in names}
        return write_rows(self._store, self._lay_out(rows), values, self._flushed)


def _is_written(found: Mapping[str, int | None], app_id: str | None, version: int) -> bool:
    last = None if app_id is None else found[app_id]
    return last is not None and last >= version


def raise_epoch(uri: str, epoch: Epoch) -> None:
    """Record the epoch in the table, which fences all earlier epochs of the node.

    The record is a commit. Commits of earlier epochs stay valid if they precede it, and are refused
    after it. Raises FencedError if the table records a later epoch.
    """
    appender = Appender(uri)
    if not appender.append(None, epoch.app_id, epoch.number):
        epoch.check(uri, appender.last_version(epoch.app_id))


class TableWatch:
    """A check, from another thread, that an appender's table was not replaced.

    The appender itself checks before each commit; this check serves while there are none. It reads
    only the appender's version. It costs some `stat`s a second on a disk. In a store it costs one
    or two HEADs every ten seconds, and with `ends_by_restore` one GET.
    """

    def __init__(self, uri: str, appender: Appender, ends_by_restore: bool) -> None:
        self._uri = uri
        self._appender = appender
        self._same = SameTable(uri, appender.table_id, appender.version)
        self._log = open_log(uri) if ends_by_restore else None
        self._at = appender.version

    def check_if_due(self) -> None:
        """Raise TableReplacedError if the table is another one, or was restored.

        Raises TableAway, DeltaError and OSError if that cannot be determined now.
        """
        if not self._same.is_due():
            return
        self._at = max(self._at, self._appender.version)
        if self._log is not None:
            self._look_for_restore()
        self._same.check(self._at)

    def _look_for_restore(self) -> None:
        """Read the commits of other writers after the appender's version."""
        assert self._log is not None
        while True:
            try:
                actions = self._log.next_commit(self._at)
            except LogGone:
                # The appender will read the whole table again.
                return
            if actions is None:
                return
            check_not_restored(self._uri, self._at + 1, actions)
            self._at += 1
