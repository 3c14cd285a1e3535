"""What the log of a table says of the table now, kept up commit by commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.delta.actions import Action
from pipeline.delta.arrow import to_table
from pipeline.delta.data_files import DataFile
from pipeline.delta.description import read_description
from pipeline.delta.log import LogGone
from pipeline.delta.protocol import writer_features
from pipeline.delta.table import local_folder, open_delta
from pipeline.delta.table_log import TableLog, open_log


class Snapshot:
    """A table's version, size, transactions and description; for one thread.

    delta-rs reads the table once. From then on `follow` reads one file for each commit that others
    made, whatever the table's size.
    """

    def __init__(self, uri: str | Path) -> None:
        """Read the table at a URI or in a folder; raises deltalake's TableNotFoundError."""
        self._uri = str(uri)
        self.log: TableLog = open_log(self._uri)
        self._load()

    def follow(self) -> None:
        """Take in what others committed since the last look."""
        while True:
            try:
                actions = self.log.next_commit(self.version)
            except LogGone:
                self._load()
                continue
            if actions is None:
                return
            if any(_needs_load(each) for each in actions):
                self._load()
                continue
            self.version += 1
            for action in actions:
                self._apply(action)

    def advance(self, added: DataFile | None, app_id: str | None, version: int) -> None:
        """Take in a commit of our own: the file that it added, and the transaction, if any."""
        self.version += 1
        if added is not None:
            self._count(1, added.size)
        if app_id is not None:
            self._transactions[app_id] = version

    def last_version(self, app_id: str) -> int:
        """Return the last version that the application wrote, -1 if none."""
        if app_id not in self._transactions:
            version = open_delta(self._uri).transaction_version(app_id)
            self._transactions[app_id] = -1 if version is None else version
        return self._transactions[app_id]

    def _load(self) -> None:
        handle = open_delta(self._uri)
        files = to_table(handle.get_add_actions(flatten=True))
        self.version: int = handle.version()
        self.files: int = files.num_rows
        self.bytes: int = sum(files.column("size_bytes").to_pylist())
        self.partition_by: list[str] = list(handle.metadata().partition_columns)
        # What the table asks of its writers.
        self.features: tuple[str, ...] = writer_features(handle)
        # The table's metaData and protocol actions; None if the log could not tell them, and for a
        # table that is not in a local folder: they are for its checksum.
        self.description: dict[str, Any] | None = None
        folder = local_folder(self._uri)
        if folder is not None:
            self.description = read_description(folder / "_delta_log", self.version)
        self._transactions: dict[str, int] = {}

    def _apply(self, action: Action) -> None:
        if action.add is not None:
            self._count(1, action.add.size)
        if action.remove is not None:
            self._count(-1, action.remove.size)
        # Only the applications that were asked for are kept: a table may have very many others.
        if action.txn is not None and action.txn.app_id in self._transactions:
            self._transactions[action.txn.app_id] = action.txn.version

    def _count(self, change: int, size: int | None) -> None:
        self.files += change
        self.bytes += change * (size or 0)


def _needs_load(action: Action) -> bool:
    """Whether the action alone does not tell the table's new size or description."""
    size_unknown = action.remove is not None and action.remove.size is None
    return size_unknown or action.meta_data is not None or action.protocol is not None
