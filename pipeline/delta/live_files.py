"""The files of a table with the statistics of each, kept up commit by commit, on any store.

delta-rs tells the statistics that it knows. Here they are told as their writer wrote them, so that
a writer may say more of a file than Delta asks for.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.pipeline.delta.commit import Action, parse_commit
from group_coordinator.pipeline.delta.commit_reader import GoneCheck, read_commit
from group_coordinator.pipeline.delta.log import LogGone, open_log
from group_coordinator.pipeline.delta.protocol import writer_features
from group_coordinator.pipeline.delta.replay import TableState, from_checkpoint
from group_coordinator.pipeline.delta.snapshot import read_checkpoint
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyarrow.fs import FileSystem

    from group_coordinator.pipeline.delta.commit import AddedFile

_COLUMNS = ("add", "txn", "metaData", "protocol")


class Change(Struct, frozen=True):
    """What one commit did: files that it added and removed, transactions, in its order.

    `everything`: the table was read anew, and has the files in `added` and no others.
    """

    added: list[AddedFile]
    removed: list[str]
    transactions: dict[str, int]
    everything: bool = False


class LiveFiles:
    """A place in a table's log: from its beginning, or its newest Delta checkpoint, on.

    `version` is the newest one that is behind it, `features` what the table asks of its writers
    there. A table of ours has plain Delta checkpoints of one file; one in another form is refused
    by a Failure. For one thread.
    """

    def __init__(self, uri: str) -> None:
        self.files: FileSystem = open_files(uri)
        self.version = -1
        self.features: tuple[str, ...] = ()
        self._uri = uri
        self._description = _state()
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
        actions = parse_commit(content)
        return _change(actions), self._behind(self.version + 1, actions)

    def _behind(self, version: int, actions: Sequence[Action]) -> LiveFiles:
        behind = copy(self)
        behind.version = version
        described = [a for a in actions if a.meta_data is not None or a.protocol is not None]
        if described:
            behind._description = copy(self._description)
            for action in described:
                behind._description.take(action)
            behind.features = writer_features(behind._description)
        return behind

    def _load(self) -> tuple[Change, LiveFiles] | None:
        state = from_checkpoint(open_log(self._uri), read_checkpoint(_COLUMNS), _state)
        if state.version < 0:
            return None
        description = [Action(meta_data=state.meta_data), Action(protocol=state.protocol)]
        change = Change([*state.files.values()], [], state.transactions, everything=True)
        return change, self._behind(state.version, description)


def _state() -> TableState[AddedFile]:
    return TableState(lambda added: added, lambda _app_id: True)


def _change(actions: list[Action]) -> Change:
    return Change(
        [action.add for action in actions if action.add is not None],
        [action.remove.file for action in actions if action.remove is not None],
        {each.txn.app_id: each.txn.version for each in actions if each.txn is not None},
    )
