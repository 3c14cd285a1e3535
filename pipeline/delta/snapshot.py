"""What the log of a table says of the table now, kept up commit by commit.

`LiveFiles` have each file's statistics as its writer wrote them: more than Delta asks for.
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
    """A table's state, of its files the sizes in bytes, as of the last look; for one thread.

    The log is read from the newest Delta checkpoint on once. From then on `follow` reads one file
    for each commit that others made, whatever the table's size.

    With `ends_by_restore` a RESTORE by somebody else is another table: the process has decided by
    rows that it took back.
    """

    def __init__(self, uri: str, ends_by_restore: bool = False) -> None:
        """Read the table; raises deltalake's TableNotFoundError, Failure and OSError."""
        self.uri = uri
        self.log = open_log(uri)
        self._ends_by_restore = ends_by_restore
        # How often the table was described anew, as by an ALTER TABLE, since this was made.
        self.described = 0
        # Only the identifiers that were asked for are kept: a table may have very many others.
        self._asked: set[str] = set()
        self.state = self._read()
        self.features = writer_features(self.state)
        self._same = SameTable(uri, _id_of(self.state.meta_data), self.state.version)

    @property
    def is_append_only(self) -> bool:
        """Whether no row of the table may be removed."""
        return is_on(self.state.properties, "delta.appendOnly")

    def versions(self, app_ids: Collection[str]) -> dict[str, int | None]:
        """Return the versions to which applications have come, None for one that never wrote.

        Those that nobody has asked for yet are read together.
        """
        unknown = set(app_ids) - self._asked
        if unknown:
            read = read_checkpoint(("txn",))
            found = replay(self.log, read, lambda: TableState(lambda _: 0, unknown.__contains__))
            self.state.transactions.update(found.transactions)
            self._asked |= unknown
        return {each: self.state.transactions.get(each) for each in app_ids}

    def last_version(self, app_id: str) -> int:
        """Return the version to which an application has come, -1 if it never wrote."""
        found = self.versions([app_id])[app_id]
        return -1 if found is None else found

    def follow(self, is_sure: bool = True) -> None:
        """Take in what others committed since the last look; see `Log.next_commit`.

        Raises TableReplacedError if the table is another one than was read, and TableAway: who
        commits then would make a log with a gap. A disk is asked each time.
        """
        while True:
            try:
                actions = self.log.next_commit(self.state.version, is_sure)
                is_sure = True
            except LogGone:
                # All is read before anything of it is taken in: a version beside the transactions
                # of an earlier one would let an epoch write that the table has fenced off.
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
        """Create the next version, and take it in; raises as `Log.create` does."""
        self.log.create(commit, self.state.version + 1)
        self._take(commit.actions)

    def _take(self, actions: Sequence[Action]) -> None:
        for each in actions:
            if each.meta_data is not None:
                other = self._same.is_other(_id_of(each.meta_data))
                if other is not None:
                    raise other
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
        self._check_gone = GoneCheck(self.files, SameTable(uri))

    def look(self) -> tuple[Change, LiveFiles] | None:
        """Return the next change and the place behind it; None if there is none.

        This place stays where it is: whoever cannot take the change in looks again. From the
        beginning the change is the whole table at its newest Delta checkpoint, if it has one. One
        attempt to open a file. Raises OSError, and Failure where nothing of a log is found: what is
        away for a moment is not taken for a table without files.
        """
        if self.version < 0 and (found := self._load()) is not None:
            return found
        content = read_commit(self.files, self.version + 1)
        if content is not None:
            return self.after(parse_commit(content))
        if self.version < 0:
            raise Failure(f"{self._uri} has no log that can be read")
        try:
            self._check_gone(self.version + 1)
        except LogGone:
            return self._load()
        return None

    def after(self, actions: Sequence[Action]) -> tuple[Change, LiveFiles]:
        """Return what the next commit does, which is of these actions, and the place behind it."""
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
    """Return what reads these columns of a Delta checkpoint, by Arrow."""

    def read(log: Log, version: int) -> Iterator[Action]:
        path = f"_delta_log/{checkpoint_name(version)}"
        with read_whole(path), open_files(log.uri).open_input_file(path) as file:
            # Not `read_table`, which makes columns of their own of fields.
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
    """Return an action of a checkpoint's row as a commit has it: maps as objects, no nulls."""
    plain: dict[str, Any] = {}
    for name, field in value.items():
        if name in _MAPS:
            plain[name] = dict(field or ())
        elif isinstance(field, dict):
            plain[name] = _plain(field)
        elif field is not None:
            plain[name] = field
    return plain
