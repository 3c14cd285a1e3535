"""The files of a table with the statistics of each, kept up commit by commit, on any store.

delta-rs tells the statistics that it knows. Here they are told as their writer wrote them, so that
a writer may say more of a file than Delta asks for.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
import pyarrow.parquet as pq
from msgspec import Struct

from group_coordinator.pipeline.delta.actions import decode_commit
from group_coordinator.pipeline.delta.commit_reader import (
    GoneCheck,
    noted_checkpoint,
    open_files,
    read_commit,
)
from group_coordinator.pipeline.delta.file_actions import FileAction, LiveFile
from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.parquet_file import read_whole
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


_decode_action = msgspec.json.Decoder(FileAction).decode
_COLUMNS = ["add", "txn"]


class Change(Struct, frozen=True):
    """What one commit did: files that it added and removed, transactions, in its order.

    `everything`: the table was read anew, and has the files in `added` and no others.
    """

    added: list[LiveFile]
    removed: list[str]
    transactions: dict[str, int]
    everything: bool = False


class LiveFiles:
    """A place in a table's log: from its beginning, or its newest Delta checkpoint, on.

    `version` is the newest one that is behind it. A table of ours has plain Delta checkpoints of
    one file; one in another form is refused by a Failure. For one thread.
    """

    def __init__(self, uri: str) -> None:
        self.files: FileSystem = open_files(uri)
        self.version = -1
        self._uri = uri
        self._check_gone = GoneCheck(self.files)

    def look(self) -> tuple[Change, LiveFiles] | None:
        """Return the next change and the place behind it; None if there is none.

        This place stays where it is: whoever cannot take the change in looks again. From the
        beginning the change is the whole table at its newest Delta checkpoint, if it has one. One
        attempt to open a file. Raises OSError, and Failure where nothing of a log is found: what is
        away for a moment is not taken for a table without files.
        """
        if self.version < 0:
            found = self._load()
            if found is not None:
                return found
        content = read_commit(self.files, self.version + 1)
        if content is None:
            if self.version < 0:
                raise Failure(f"{self._uri} has no log that can be read")
            try:
                self._check_gone(self.version + 1)
            except LogGone:
                return self._load()
            return None
        change = _change(decode_commit(content, _decode_action))
        return change, self._behind(self.version + 1)

    def _behind(self, version: int) -> LiveFiles:
        behind = copy(self)
        behind.version = version
        return behind

    def _load(self) -> tuple[Change, LiveFiles] | None:
        noted = noted_checkpoint(self.files)
        if noted is None:
            return None
        path = f"_delta_log/{noted.version:020}.checkpoint.parquet"
        try:
            with read_whole(path), self.files.open_input_file(path) as file:
                rows = pq.read_table(file, columns=_COLUMNS)
        except FileNotFoundError as error:
            raise Failure(f"{self._uri} has no plain Delta checkpoint: {error}") from error
        added = [
            LiveFile(
                unquote(row["path"]),
                row["size"],
                row["modificationTime"],
                dict(row["partitionValues"] or ()),
                row["stats"],
            )
            for row in rows.column("add").drop_null().to_pylist()
        ]
        transactions = {
            row["appId"]: row["version"] for row in rows.column("txn").drop_null().to_pylist()
        }
        return Change(added, [], transactions, everything=True), self._behind(noted.version)


def _change(actions: list[FileAction]) -> Change:
    added = [
        msgspec.structs.replace(action.add, path=unquote(action.add.path))
        for action in actions
        if action.add is not None
    ]
    removed = [unquote(action.remove.path) for action in actions if action.remove is not None]
    transactions = {a.txn.app_id: a.txn.version for a in actions if a.txn is not None}
    return Change(added, removed, transactions)
