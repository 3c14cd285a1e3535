"""Opening a table for appends, by where it lies; and fencing off earlier writers of it.

A plain table is written by this package, in a local folder by `LocalAppender` and in a store by
`StoreAppender`; any other by delta-rs, which knows more of Delta's features (`RemoteAppender`). A
local commit takes 2 to 4 ms whatever the table's size, and a commit by delta-rs 0.2 ms longer with
every file in the table, 85 ms at 450 files. In a store an append is two requests instead of ten.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from group_coordinator.pipeline.delta.epoch import Epoch
from group_coordinator.pipeline.delta.layout import LayOut, Layout
from group_coordinator.pipeline.delta.local_appender import LocalAppender
from group_coordinator.pipeline.delta.protocol import UnsupportedTable
from group_coordinator.pipeline.delta.remote_appender import RemoteAppender
from group_coordinator.pipeline.delta.store_appender import StoreAppender
from group_coordinator.pipeline.delta.table import local_folder

if TYPE_CHECKING:
    from collections.abc import Collection

    from group_coordinator.pipeline.delta.appender import TableAppender

log = logging.getLogger(__name__)


def open_appender(
    uri: str, epoch: Epoch | None = None, flushed: bool = False, lay_out: LayOut = Layout
) -> TableAppender:
    """Return the appender for an existing table; raises deltalake's TableNotFoundError.

    With an `epoch` it appends only while the table records no later epoch of that node. An append
    to a table that asks for what delta-rs does not implement either raises UnsupportedTable.
    With `flushed` an append to a local folder is on the disk when it returns. `lay_out` says how
    rows become a file of a plain table (`pipeline.delta.layout`).
    """
    return _PlainAppender(uri, epoch, flushed, lay_out)


class _PlainAppender:
    """Appends to a table: by delta-rs once the table asks for more than files."""

    def __init__(self, uri: str, epoch: Epoch | None, flushed: bool, lay_out: LayOut) -> None:
        self._uri, self._epoch = uri, epoch
        folder = local_folder(uri)
        self._appender: TableAppender
        try:
            if folder is None:
                self._appender = StoreAppender(uri, epoch, lay_out)
            else:
                self._appender = LocalAppender(folder, epoch, flushed, lay_out)
        except UnsupportedTable as error:
            self._use_delta_rs(error)

    def append(self, rows: pa.Table | None, app_id: str | None = None, version: int = 0) -> bool:
        """Append in one commit; see `Appender.append`."""
        try:
            return self._appender.append(rows, app_id, version)
        except UnsupportedTable as error:
            if isinstance(self._appender, RemoteAppender):
                raise
            self._use_delta_rs(error)
            return self._appender.append(rows, app_id, version)

    def write_ahead(self, rows: pa.Table) -> None:
        """Begin to write the rows' file; see `Appender.write_ahead`."""
        self._appender.write_ahead(rows)

    def last_version(self, app_id: str) -> int:
        """Return the last version that the application wrote, -1 if none."""
        return self._appender.last_version(app_id)

    def forget(self) -> None:
        """Read what other writers committed; see `Appender.forget`."""
        self._appender.forget()

    def file_paths(self) -> Collection[str] | None:
        """Return the table's files, if they hold its rows; see `TableAppender.file_paths`."""
        return self._appender.file_paths()

    def _use_delta_rs(self, why: UnsupportedTable) -> None:
        log.warning("%s: delta-rs appends from now on, at up to 85 ms a commit", why)
        self._appender = RemoteAppender(self._uri, self._epoch)


def raise_epoch(uri: str, epoch: Epoch) -> None:
    """Record the epoch in the table, which refuses every earlier start of the node from then on.

    The epoch is one commit, so the order of commits decides: what an earlier start committed before
    it stands, what comes after it is refused. Raises FencedError if the table records a later one.
    """
    appender = open_appender(uri)
    if not appender.append(None, epoch.app_id, epoch.number):
        epoch.check(uri, appender.last_version(epoch.app_id))
