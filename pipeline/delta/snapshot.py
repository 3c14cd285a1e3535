"""What the log of a table says of the table now, kept up commit by commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from group_coordinator.pipeline.delta.actions import Action
from group_coordinator.pipeline.delta.arrow import to_table
from group_coordinator.pipeline.delta.data_files import DataFile
from group_coordinator.pipeline.delta.description import read_description
from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.protocol import writer_features
from group_coordinator.pipeline.delta.table import local_folder, open_delta
from group_coordinator.pipeline.delta.table_log import TableLog, open_log


class Snapshot:
    """A table's version, files, transactions and description; for one thread.

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
            self._add(added.path, added.size)
        if app_id is not None:
            self._transactions[app_id] = version

    def last_version(self, app_id: str) -> int:
        """Return the last version that the application wrote, -1 if none."""
        if app_id not in self._transactions:
            version = open_delta(self._uri).transaction_version(app_id)
            self._transactions[app_id] = -1 if version is None else version
        return self._transactions[app_id]

    def _load(self) -> None:
        # All is read before anything of it is taken in: a version beside the transactions of an
        # earlier one would let an epoch write that the table has fenced off.
        handle = open_delta(self._uri)
        version = handle.version()
        files = to_table(handle.get_add_actions(flatten=True)).select(["path", "size_bytes"])
        partition_by = list(handle.metadata().partition_columns)
        features = writer_features(handle)
        folder = local_folder(self._uri)
        description = None
        if folder is not None:
            description = read_description(folder / "_delta_log", version)
        self.version: int = version
        # The files' sizes, bytes, by their paths as the log has them.
        self.files: dict[str, int] = dict(zip(*files.to_pydict().values(), strict=True))
        self.bytes: int = sum(self.files.values())
        self.partition_by: list[str] = partition_by
        # What the table asks of its writers.
        self.features: tuple[str, ...] = features
        # The table's metaData and protocol actions; None if the log could not tell them, and for a
        # table that is not in a local folder: they are for its checksum.
        self.description: dict[str, Any] | None = description
        self._transactions: dict[str, int] = {}

    def _apply(self, action: Action) -> None:
        if action.add is not None:
            self._add(action.add.path, action.add.size or 0)
        if action.remove is not None:
            self._remove(action.remove.path)
        # Only the applications that were asked for are kept: a table may have very many others.
        if action.txn is not None and action.txn.app_id in self._transactions:
            self._transactions[action.txn.app_id] = action.txn.version

    def _add(self, path: str, size: int) -> None:
        # A writer that changes what the log says of a file adds that file again.
        self._remove(path)
        self.files[path] = size
        self.bytes += size

    def _remove(self, path: str) -> None:
        self.bytes -= self.files.pop(path, 0)


def _needs_load(action: Action) -> bool:
    """Whether the action changes the table's description."""
    return action.meta_data is not None or action.protocol is not None
