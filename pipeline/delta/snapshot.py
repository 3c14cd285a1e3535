"""A table's state according to its log, kept up to date with each commit.

`Snapshot` serves writers. `LiveFiles` also has each file's statistics as its writer wrote them,
which may be more than Delta requires.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError
from msgspec import Struct

from group_coordinator.pipeline.delta.commit import Action, AddedFile, Transaction, parse_commit
from group_coordinator.pipeline.delta.identity import (
    GoneCheck,
    SameTable,
    check_not_restored,
    read_commit,
)
from group_coordinator.pipeline.delta.log import LogGone, checkpoint_name, open_log
from group_coordinator.pipeline.delta.parquet_file import read_whole
from group_coordinator.pipeline.delta.protocol import is_on, writer_features
from group_coordinator.pipeline.delta.replay import Sizes, TableState, from_checkpoint, replay
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa
    from pyarrow.fs import FileSystem

    from group_coordinator.pipeline.delta.commit import Commit
    from group_coordinator.pipeline.delta.log import Log
    from group_coordinator.pipeline.delta.replay import ReadCheckpoint

_COLUMNS = ("add.path", "add.size", "txn", "metaData", "protocol")
# Delta's maps, which Arrow has as lists of pairs.
_MAPS = ("configuration", "options", "partitionValues", "tags")


class Snapshot:
    """A table's state as of the last read, with the sizes of its files in bytes; for one thread.

    The log is read once from the newest Delta checkpoint on. Then `follow` reads one file for each
    commit of another writer, in a table of any size.

    With `ends_by_restore` another process's RESTORE makes it another table, because this process
    has decided by rows that were removed.
    """

    def __init__(self, uri: str, ends_by_restore: bool = False) -> None:
        """Read the table. Raises deltalake's TableNotFoundError, Failure and OSError."""
        self.uri = uri
        self.log = open_log(uri)
        self._ends_by_restore = ends_by_restore
        # The number of changes of the table's metadata or protocol since then, for example by ALTER
        # TABLE.
        self.described = 0
        # Only requested identifiers are kept: a table may have very many others.
        self._asked: set[str] = set()
        self.state = self._read()
        self.features = writer_features(self.state)
        self._same = SameTable(uri, _id_of(self.state.meta_data), self.state.version)

    @property
    def is_append_only(self) -> bool:
        """Whether no row of the table may be removed (`delta.appendOnly`)."""
        return is_on(self.state.properties, "delta.appendOnly")

    def versions(self, app_ids: Collection[str]) -> dict[str, int | None]:
        """Return the versions that applications have reached, None for one that never wrote.

        Identifiers that were not requested before are read from the log, in one pass.
        """
        unknown = set(app_ids) - self._asked
        if unknown:
            read = read_checkpoint(("txn",))
            found = replay(self.log, read, lambda: TableState(lambda _: 0, unknown.__contains__))
            self.state.transactions.update(found.transactions)
            self._asked |= unknown
        return {each: self.state.transactions.get(each) for each in app_ids}

    def last_version(self, app_id: str) -> int:
        """Return the version that an application has reached, -1 if it never wrote."""
        found = self.versions([app_id])[app_id]
        return -1 if found is None else found

    def follow(self, is_sure: bool = True) -> None:
        """Apply the commits of other writers since the last read.

        `is_sure` is passed to `Log.next_commit`. Raises TableReplacedError if the table was
        replaced since it was read. Raises TableAway if it cannot be found, because a commit would
        create a log with a gap. This is checked each time on a disk, and every ten seconds in a
        store.
        """
        while True:
            try:
                actions = self.log.next_commit(self.state.version, is_sure)
                is_sure = True
            except LogGone:
                # Replaced only after everything was read: a new version with old transactions would
                # let a fenced epoch write.
                state = self._read()
                self.described += state.description != self.state.description
                self.state = state
                self.features = writer_features(self.state)
                continue
            if actions is None:
                if not self.log.store.costs.is_remote or self._same.is_due():
                    self._same.check(self.state.version)
                return
            if self._ends_by_restore:
                check_not_restored(self.uri, self.state.version + 1, actions)
            self._take(actions)

    def create(self, commit: Commit) -> None:
        """Create the commit as the next version and apply it. Raises the errors of `Log.create`."""
        self.log.create(commit, self.state.version + 1)
        self._take(commit.actions)

    def _take(self, actions: Sequence[Action]) -> None:
        self._same.check_actions(actions)
        self.state.take_commit(actions)
        if any(each.meta_data is not None or each.protocol is not None for each in actions):
            self.described += 1
            self.features = writer_features(self.state)

    def _read(self) -> Sizes:
        state = replay(self.log, read_checkpoint(_COLUMNS), lambda: Sizes(self._asked.__contains__))
        if state.version < 0:
            raise TableNotFoundError(f"no Delta table at {self.uri}")
        return state


def _id_of(meta_data: dict[str, Any] | None) -> str | None:
    return (meta_data or {}).get("id")


class Change(Struct, frozen=True):
    """The changes of one commit, in its order: added files, removed files, and transactions.

    `everything` means that the whole table was read again: it has exactly the files in `added`.
    """

    added: list[AddedFile]
    removed: list[str]
    transactions: dict[str, int]
    everything: bool = False


class LiveFiles:
    """A position in a table's log, from its newest Delta checkpoint (or version 0) on.

    `version` is the newest version before the position, and `features` are the table features that
    writers of this version must support. With a `table_id`, a table with another id raises
    TableReplacedError. For one thread.
    """

    def __init__(self, uri: str, table_id: str | None = None) -> None:
        self.files: FileSystem = open_files(uri)
        self.version = -1
        self.features: tuple[str, ...] = ()
        self._uri = uri
        self._description = _state()
        self._same = SameTable(uri, table_id)
        self._check_gone = GoneCheck(self.files, self._same)

    def look(self) -> tuple[Change, LiveFiles] | None:
        """Return the next change and the position after it; None without a new commit.

        This position stays, so that a caller that fails to apply the change can read it again. The
        first change is the whole table at its newest Delta checkpoint, if there is one. One attempt
        to open a file, and without a new commit `check_same`. Raises OSError. Raises Failure if
        there is no log, because a folder that is missing for a moment is not a table without files,
        or if the Delta checkpoint is not one plain file.
        """
        if self.version < 0 and (found := self._load()) is not None:
            return found
        content = read_commit(self.files, self.version + 1)
        if content is not None:
            return self.after(parse_commit(content))
        if self.version < 0:
            raise Failure(f"the log of {self._uri} cannot be found")
        # A missing folder has no next commit either.
        self.check_same()
        try:
            self._check_gone(self.version + 1)
        except LogGone:
            return self._load()
        return None

    def check_same(self) -> None:
        """Check as `SameTable.check` does up to `version`: on a disk always, in a store if due."""
        if not self._same.is_remote:
            self._same.check(self.version)
        else:
            self._same.check_if_due(self.version)

    def after(self, actions: Sequence[Action]) -> tuple[Change, LiveFiles]:
        """Return the change of the next commit, given its actions, and the position after it."""
        return _change(actions), self._behind(self.version + 1, actions)

    def _behind(self, version: int, actions: Sequence[Action]) -> LiveFiles:
        behind = copy(self)
        behind.version = version
        described = [a for a in actions if a.meta_data is not None or a.protocol is not None]
        if described:
            behind._description = copy(self._description)
            self._same.check_actions(described)
            for action in described:
                behind._description.take(action)
            behind.features = writer_features(behind._description)
        return behind

    def _load(self) -> tuple[Change, LiveFiles] | None:
        read = read_checkpoint(("add", "txn", "metaData", "protocol"))
        state = from_checkpoint(open_log(self._uri), read, _state)
        if state.version < 0:
            return None
        description = [Action(meta_data=state.meta_data), Action(protocol=state.protocol)]
        change = Change([*state.files.values()], [], state.transactions, everything=True)
        return change, self._behind(state.version, description)


def _state() -> TableState[AddedFile]:
    return TableState(lambda added: added, lambda _app_id: True)


def _change(actions: Sequence[Action]) -> Change:
    return Change(
        [action.add for action in actions if action.add is not None],
        [action.remove.file for action in actions if action.remove is not None],
        {each.txn.app_id: each.txn.version for each in actions if each.txn is not None},
    )


def read_checkpoint(columns: Sequence[str]) -> ReadCheckpoint:
    """Return a function that reads these columns of a Delta checkpoint with Arrow."""

    def read(log: Log, version: int) -> Iterator[Action]:
        path = f"_delta_log/{checkpoint_name(version)}"
        with read_whole(path), open_files(log.uri).open_input_file(path) as file:
            # `read_table` would split structs into columns.
            rows = pq.ParquetFile(file).read(columns=list(columns))
        return _actions(rows)

    return read


def _actions(rows: pa.Table) -> Iterator[Action]:
    for name in rows.column_names:
        for row in rows.column(name).drop_null().to_pylist():
            value = _plain(row)
            if name == "add":
                yield Action(add=_added(value))
            elif name == "txn":
                yield Action(txn=Transaction(value["appId"], value["version"]))
            elif name == "metaData":
                yield Action(meta_data=value)
            elif name == "protocol":
                yield Action(protocol=value)


def _added(value: dict[str, Any]) -> AddedFile:
    return AddedFile(
        value["path"],
        value.get("size"),
        value.get("modificationTime", 0),
        value.get("partitionValues", {}),
        stats=value.get("stats"),
        deletion_vector=value.get("deletionVector"),
    )


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Return an action of a checkpoint in a commit's form: maps as objects, no nulls."""
    plain: dict[str, Any] = {}
    for name, field in value.items():
        if name in _MAPS:
            plain[name] = dict(field or ())
        elif isinstance(field, dict):
            plain[name] = _plain(field)
        elif field is not None:
            plain[name] = field
    return plain
