"""Appending to a plain table in an object store: one PUT of a file and one of the commit.

delta-rs takes ten requests for an append and more, three of them lists, which a store bills as
PUTs. Here nothing is read before the first attempt to commit: whoever was faster has taken the
version, and only then is his commit read.
"""

from __future__ import annotations

import functools
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from group_coordinator.pipeline import background
from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta.data_files import DataFile, new_path
from group_coordinator.pipeline.delta.file_appender import FileAppender
from group_coordinator.pipeline.delta.freshness import COMMITTABLE_S, Freshness
from group_coordinator.pipeline.delta.layout import LayOut, Layout, write_parquet
from group_coordinator.pipeline.delta.object_store import Folder
from group_coordinator.pipeline.delta.store_log import StoreLog
from group_coordinator.pipeline.delta.store_trim import CLEAN_UP_S, checkpoint_in_store

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta.epoch import Epoch

# Every so many versions a Delta checkpoint may be due.
CHECKPOINT_EVERY = 100


@functools.lru_cache(maxsize=1)
def _beside() -> ThreadPoolExecutor:
    """The threads that write files ahead, of all appenders of the process."""
    return ThreadPoolExecutor(4, "write-ahead")


class StoreAppender(FileAppender):
    """Appends to a plain table in an object store.

    Raises UnsupportedTable as `FileAppender` does.
    """

    def __init__(self, uri: str, epoch: Epoch | None = None, lay_out: LayOut = Layout) -> None:
        self._folder = Folder(uri)
        self._cleans_up_at = monotonic() + CLEAN_UP_S
        self._ahead: tuple[pa.Table, Future[DataFile], Freshness] | None = None
        super().__init__(uri, epoch, flushed=False, lay_out=lay_out)

    def _looks_first(self) -> bool:
        log = self._snapshot.log
        return not (isinstance(log, StoreLog) and log.knows_end)

    def write_ahead(self, rows: pa.Table) -> None:
        """Begin to write the rows' file; see `Appender.write_ahead`."""
        begun = Freshness.of_now()
        self._ahead = rows, background.submit(_beside(), partial(self._upload, rows)), begun

    def _write_file(self, rows: pa.Table) -> DataFile:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] is rows and ahead[2].is_within(COMMITTABLE_S / 2):
            return ahead[1].result()
        return self._upload(rows)

    def _upload(self, rows: pa.Table) -> DataFile:
        names = self._snapshot.partition_by
        values: dict[str, str | None] = {name: str(rows.column(name)[0].as_py()) for name in names}
        path = new_path(values, "snappy")
        buffer = pa.BufferOutputStream()
        layout = self._lay_out(rows)
        write_parquet(buffer, layout, names)
        content = buffer.getvalue().to_pybytes()
        self._folder.write(path, content)
        size, tags = len(content), dict(layout.tags)
        return DataFile(path, size, clock_ms(), rows.num_rows, values, tags=tags)

    def _delete_file(self, path: str) -> None:
        self._folder.delete([path])

    def _follow_up(self) -> None:
        """Write a Delta checkpoint now and then, and clean the log up more seldom."""
        version = self._snapshot.version
        if version % CHECKPOINT_EVERY == 0:
            cleans_up = monotonic() >= self._cleans_up_at
            if cleans_up:
                self._cleans_up_at = monotonic() + CLEAN_UP_S
            log = self._snapshot.log
            known = log.recent() if isinstance(log, StoreLog) else {}
            work = partial(checkpoint_in_store, self._uri, version, cleans_up, known)
            background.run("checkpoint", work)
