"""What the log of a table says of the table now, kept up commit by commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError

from group_coordinator.pipeline.delta.commit import Action, AddedFile, Transaction
from group_coordinator.pipeline.delta.log import LogGone, checkpoint_name, open_log
from group_coordinator.pipeline.delta.parquet_file import read_whole
from group_coordinator.pipeline.delta.protocol import is_on, writer_features
from group_coordinator.pipeline.delta.replay import Sizes, TableState, replay
from group_coordinator.pipeline.delta.store_files import open_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa

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
    """

    def __init__(self, uri: str) -> None:
        """Read the table; raises deltalake's TableNotFoundError, Failure and OSError."""
        self.uri = uri
        self.log = open_log(uri)
        # How often the table was described anew, as by an ALTER TABLE, since this was made.
        self.described = 0
        # Only the identifiers that were asked for are kept: a table may have very many others.
        self._asked: set[str] = set()
        self.state = self._read()
        self.features = self._features()

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
        """Take in what others committed since the last look; see `Log.next_commit`."""
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
                self.features = self._features()
                continue
            if actions is None:
                return
            self._take(actions)

    def create(self, commit: Commit) -> None:
        """Create the next version, and take it in; raises as `Log.create` does."""
        self.log.create(commit, self.state.version + 1)
        self._take(commit.actions)

    def _take(self, actions: Sequence[Action]) -> None:
        self.state.take_commit(actions)
        if any(each.meta_data is not None or each.protocol is not None for each in actions):
            self.described += 1
            self.features = self._features()

    def _features(self) -> tuple[str, ...]:
        """What the table asks of its writers."""
        return writer_features(self.state)

    def _read(self) -> Sizes:
        state = replay(self.log, read_checkpoint(_COLUMNS), lambda: Sizes(self._asked.__contains__))
        if state.version < 0:
            raise TableNotFoundError(f"no Delta table at {self.uri}")
        return state


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
