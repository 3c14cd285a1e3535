"""Appending to a table: one Parquet file and one commit, at most once per (application, version).

An application is a name in Delta's transaction identifiers, such as a streaming query's id; its
versions rise with each append, as the query's batch ids do.

A commit outlives the process, killed at any instant. Unless the appender is `flushed`, it is not
forced to the disk: a machine that loses its power may lose the latest commits, as a Kafka broker
with its default settings may, or keep a commit whose file is empty (`pipeline.delta.torn`).
"""

from __future__ import annotations

import functools
import logging
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from group_coordinator.pipeline import background
from group_coordinator.pipeline.clock import Freshness
from group_coordinator.pipeline.delta.commit import Bound, Changes, Move
from group_coordinator.pipeline.delta.data_files import (
    COMMITTABLE_S,
    DataFile,
    LayOut,
    Layout,
    write_rows,
)
from group_coordinator.pipeline.delta.protocol import check_writable
from group_coordinator.pipeline.delta.table import open_store
from group_coordinator.pipeline.delta.writer import TooOld, Writer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    import pyarrow as pa

    from group_coordinator.pipeline.delta.epoch import Epoch

log = logging.getLogger(__name__)


@functools.lru_cache(maxsize=1)
def _beside() -> ThreadPoolExecutor:
    """The threads that write files ahead, of all appenders of the process."""
    return ThreadPoolExecutor(4, "write-ahead")


class Appender:
    """Appends to one existing table; for one thread.

    With an `epoch` it appends only while the table records no later epoch of that node. With
    `flushed` an append to a disk has outlived a loss of power when it returns. `lay_out` says how
    rows become a file (`pipeline.delta.data_files`). With `ends_by_restore` a RESTORE by others
    counts as another table. Once the table is another one each append raises TableReplacedError.

    Raises deltalake's TableNotFoundError when it is made, and UnsupportedTable, also by any append,
    if the table asks for more than is written here (`pipeline.delta.protocol`).
    """

    def __init__(
        self,
        uri: str | Path,
        epoch: Epoch | None = None,
        flushed: bool = False,
        lay_out: LayOut = Layout,
        ends_by_restore: bool = False,
    ) -> None:
        self._uri = str(uri)
        self._epoch = epoch
        self._flushed = flushed
        self._lay_out = lay_out
        self._writer = Writer(self._uri, flushed, ends_by_restore)
        self._store = open_store(self._uri)
        self._ahead: tuple[pa.Table, Future[DataFile], Freshness] | None = None
        check_writable(self._uri, self._writer.snapshot.features)

    def append(self, rows: pa.Table | None, app_id: str | None = None, version: int = 0) -> bool:
        """Append in one commit; False if the application wrote this version, or a later one.

        `rows` None commits only that the application has come to this version. Raises
        AppendConflict when other writers win every attempt, FencedError when the appender has an
        epoch and the table records a later one, CommitStateUnknown when the append may be in the
        table or not: repeated under the same application and version it is not written twice. An
        append that raised NotFlushed is the last one: each later one raises it, too.
        """
        while True:
            try:
                return self._append(rows, app_id, version)
            except TooOld as error:
                log.warning("%s: its rows are written anew", error)

    def write_ahead(self, rows: pa.Table) -> None:
        """Begin to write the file of rows that the next append is given, where that takes long.

        If that append finds its version written, no commit names the file, and VACUUM deletes it.
        """
        if self._store.costs.is_remote:
            begun = Freshness.of_now()
            self._ahead = rows, background.submit(_beside(), partial(self._write, rows)), begun

    def last_version(self, app_id: str) -> int:
        """Return the last version that the application wrote, -1 if none."""
        return self._writer.snapshot.last_version(app_id)

    @property
    def may_stand(self) -> bool:
        """Whether the table has, or may have, what the last `append` was to commit."""
        return self._writer.may_stand

    def forget(self) -> None:
        """Read what other writers committed, also those that wrote under an application of ours."""
        self._writer.snapshot.follow()

    @property
    def table_id(self) -> str | None:
        """The id of the table that was opened."""
        return (self._writer.snapshot.state.meta_data or {}).get("id")

    @property
    def version(self) -> int:
        """The newest version that is known."""
        return self._writer.snapshot.state.version

    def file_paths(self) -> Collection[str] | None:
        """Return the paths of the table's files, from the last look.

        None if the files do not hold the table's rows as they are: those only delta-rs can tell.
        """
        snapshot = self._writer.snapshot
        return None if snapshot.features else snapshot.state.files.keys()

    def _append(self, rows: pa.Table | None, app_id: str | None, version: int) -> bool:
        found = self._writer.versions([] if app_id is None else [app_id])
        if _is_written(found, app_id, version):
            return False
        begun = Freshness.of_now()
        added = [] if rows is None else [self._file(rows)]
        self._writer.may_stand = False
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
            # While the commit may be in the table its file must stay. VACUUM deletes a file that no
            # commit names.
            if not self._writer.may_stand:
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
        return Changes(added, moves=moves, bounds=bounds)

    def _file(self, rows: pa.Table) -> DataFile:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] is rows and ahead[2].is_within(COMMITTABLE_S / 2):
            return ahead[1].result()
        return self._write(rows)

    def _write(self, rows: pa.Table) -> DataFile:
        """Write the rows, which are of one partition, as a file that is not yet the table's."""
        names = self._writer.snapshot.state.partition_by
        values = {name: str(rows.column(name)[0].as_py()) for name in names}
        return write_rows(self._store, self._lay_out(rows), values, self._flushed)


def _is_written(found: Mapping[str, int | None], app_id: str | None, version: int) -> bool:
    """Whether an application has come to a version, by the versions that were found."""
    last = None if app_id is None else found[app_id]
    return last is not None and last >= version


def raise_epoch(uri: str, epoch: Epoch) -> None:
    """Record the epoch in the table, which refuses every earlier start of the node from then on.

    The epoch is one commit, so the order of commits decides: what an earlier start committed before
    it stands, what comes after it is refused. Raises FencedError if the table records a later one.
    """
    appender = Appender(uri)
    if not appender.append(None, epoch.app_id, epoch.number):
        epoch.check(uri, appender.last_version(epoch.app_id))
