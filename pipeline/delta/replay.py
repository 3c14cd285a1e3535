"""The state of a table, built from its newest Delta checkpoint and the later commits.

Callers select the parts to keep, because the statistics and transaction identifiers of a large
table do not fit in memory. They also pass the function that reads Delta checkpoints, which are
Parquet files. `read_plain_table` is for commands that only query DuckDB: reading a root's logs
takes 5 ms, importing delta-rs, pyarrow and numpy 0.15 s of CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import unquote

import msgspec

from group_coordinator.pipeline.delta.commit import Action, AddedFile, NotWhole, Transaction
from group_coordinator.pipeline.delta.log import LogGone, checkpoint_name, open_log
from group_coordinator.pipeline.delta.table import (
    LastCheckpoint,
    listed_checkpoint,
    listed_version,
    local_folder,
)
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from group_coordinator.pipeline.delta.log import Log


_File = TypeVar("_File")
# Reads the Delta checkpoint of a version as actions. Raises OSError; FileNotFoundError if the
# checkpoint is not one plain file.
ReadCheckpoint = Callable[["Log", int], "Iterable[Action]"]


class NoPlainCheckpoint(Failure):
    """A Delta checkpoint in several files or of another form, such as v2Checkpoint."""


class TableState(Generic[_File]):
    """The state of a table according to its log up to `version`; -1 before the first action.

    `files` maps paths below the table's root to what `keep` returns for their add actions, in the
    order of the log. `transactions` maps the identifiers for which `wants` is true to their
    versions. `partition_by` lists the partition columns. `meta_data` and `protocol` are the
    actions' fields, verbatim.
    """

    def __init__(self, keep: Callable[[AddedFile], _File], wants: Callable[[str], bool]) -> None:
        self._keep, self._wants = keep, wants
        self.version = -1
        self.files: dict[str, _File] = {}
        self.transactions: dict[str, int] = {}
        self.meta_data: dict[str, Any] | None = None
        self.protocol: dict[str, Any] | None = None
        self.partition_by: list[str] = []

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return dict((self.meta_data or {}).get("configuration") or {})

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The fields of the table's schema, in Delta's JSON form."""
        text = (self.meta_data or {}).get("schemaString") or '{"fields": []}'
        return list(msgspec.json.decode(text)["fields"])

    @property
    def description(self) -> tuple[object, ...]:
        """Schema, partition columns, properties and protocol, to compare two states of a table.

        It does not depend on the JSON formatting in the log.
        """
        protocol = {name: value for name, value in (self.protocol or {}).items() if value}
        return self.fields, self.partition_by, self.properties, protocol

    def take_commit(self, actions: Iterable[Action]) -> None:
        """Apply the next commit of the log."""
        # A commit that changes a file's deletion vector removes and adds the file.
        for action in sorted(actions, key=lambda each: each.remove is None):
            self.take(action)
        self.version += 1

    def take(self, action: Action) -> None:
        """Apply the next action of the log."""
        if action.add is not None:
            path = unquote(action.add.path)
            # A writer that changes a file's entry in the log adds the file again.
            self.files.pop(path, None)
            self.files[path] = self._keep(action.add)
        elif action.remove is not None:
            self.files.pop(unquote(action.remove.path), None)
        elif action.txn is not None:
            if self._wants(action.txn.app_id):
                self.transactions[action.txn.app_id] = action.txn.version
        elif action.meta_data is not None:
            self.meta_data = action.meta_data
            self.partition_by = list(action.meta_data.get("partitionColumns") or ())
        elif action.protocol is not None:
            self.protocol = action.protocol


class Sizes(TableState[int]):
    """A table's state with the size of each file and of all files together, in bytes."""

    def __init__(self, wants: Callable[[str], bool]) -> None:
        super().__init__(lambda added: added.size or 0, wants)
        # Updated with each action; summing the files for each commit would be slow in a large
        # table.
        self.bytes = 0

    def take(self, action: Action) -> None:
        """Apply the next action of the log."""
        if action.remove is not None:
            self.bytes -= self.files.get(unquote(action.remove.path), 0)
        if action.add is not None:
            self.bytes += (action.add.size or 0) - self.files.get(unquote(action.add.path), 0)
        super().take(action)


_State = TypeVar("_State", bound=TableState[Any])


def replay(log: Log, read: ReadCheckpoint, begin: Callable[[], _State]) -> _State:
    """Return a table's newest state; its version is -1 if there is no table.

    `begin` creates an empty state. Other processes may write to the table and clean up its log
    meanwhile. Raises NoPlainCheckpoint; Failure and OSError if the log cannot be read.
    """
    while True:
        state = from_checkpoint(log, read, begin)
        try:
            _follow(log, state)
            if state.version < 0:
                # `_last_checkpoint` may be lost together with a torn checkpoint; an earlier one may
                # exist.
                listed = listed_checkpoint(each.path for each in log.store.list())
                if listed is not None:
                    state = _taken(log, read, listed, begin())
                    _follow(log, state)
        except LogGone:
            continue
        return state


def from_checkpoint(log: Log, read: ReadCheckpoint, begin: Callable[[], _State]) -> _State:
    """Return a table's state at the Delta checkpoint that `_last_checkpoint` names; -1 without one.

    Raises the errors of `replay`.
    """
    while True:
        noted = log.last_checkpoint()
        if noted is None:
            return begin()
        try:
            return _taken(log, read, noted, begin())
        except FileNotFoundError as error:
            # It may have been cleaned up because a later one exists.
            if log.last_checkpoint() == noted:
                raise NoPlainCheckpoint(
                    f"the Delta checkpoint of version {noted.version} in {log.uri} is not one "
                    "plain file, as with v2Checkpoint: run `ALTER TABLE ... DROP FEATURE "
                    "v2Checkpoint` in Spark, and then `group-coordinator repair`"
                ) from error


def _taken(log: Log, read: ReadCheckpoint, checkpoint: LastCheckpoint, state: _State) -> _State:
    for action in read(log, checkpoint.version):
        state.take(action)
    state.version = checkpoint.version
    return state


def _follow(log: Log, state: TableState[Any]) -> None:
    """Apply all commits after the state's version.

    On a disk the log is also listed. A commit file that is missing for a moment would otherwise end
    the replay early, and the table would seem to have fewer files.
    """
    while True:
        before = state.version
        while (actions := log.next_commit(state.version)) is not None:
            state.take_commit(actions)
        folder = local_folder(log.uri)
        newest = None if folder is None else listed_version(folder)
        if newest is None or newest <= state.version:
            return
        if state.version == before:
            raise NotWhole(f"version {before + 1} of {log.uri} is missing, but {newest} exists")


# --- plain tables, by DuckDB ---------------------------------------------------------------------

# Runs one query of DuckDB's SQL and returns its rows.
Ask = Callable[[str], list[tuple[Any, ...]]]
PlainTable = TableState[AddedFile]

# With a higher reader version, the files may hold other rows than the table.
_READER_VERSION = 1


def read_plain_table(folder: Path, ask: Ask) -> PlainTable | None:
    """Read the newest version of the table in a folder; DuckDB reads its Delta checkpoint by `ask`.

    Returns None for a table that only delta-rs can read: one with a higher reader version, or with
    a Delta checkpoint of several files. Other processes may write to the table and clean up its log
    meanwhile. Raises Failure, OSError and DuckDB's errors if the log cannot be read.
    """

    def read(_log: Log, version: int) -> Iterator[Action]:
        checkpoint = folder / "_delta_log" / checkpoint_name(version)
        if not checkpoint.exists():
            raise FileNotFoundError(f"{checkpoint} does not exist")
        return _actions(checkpoint, ask)

    try:
        table = replay(
            open_log(str(folder)), read, lambda: TableState(lambda added: added, lambda _: True)
        )
    except NoPlainCheckpoint:
        return None
    except NotWhole as error:
        raise Failure(str(error)) from error
    reader_version = (table.protocol or {}).get("minReaderVersion")
    return table if reader_version == _READER_VERSION else None


def _actions(checkpoint: Path, ask: Ask) -> Iterator[Action]:
    rows = ask(
        "SELECT add.path, map_keys(add.partitionValues), map_values(add.partitionValues), "
        "add.stats, txn.appId, txn.version, metaData.schemaString, metaData.partitionColumns, "
        "map_keys(metaData.configuration), map_values(metaData.configuration), "
        f"protocol.minReaderVersion FROM read_parquet({quoted(str(checkpoint))}, "
        "hive_partitioning = false) "
        "WHERE coalesce(add.path, txn.appId, metaData.schemaString) IS NOT NULL "
        "OR protocol.minReaderVersion IS NOT NULL"
    )
    for (
        file,
        names,
        values,
        stats,
        app_id,
        version,
        schema,
        columns,
        keys,
        settings,
        reader,
    ) in rows:
        if file is not None:
            given = dict(zip(names or (), values or (), strict=True))
            yield Action(add=AddedFile(file, partition_values=given, stats=stats))
        elif app_id is not None:
            yield Action(txn=Transaction(app_id, version))
        elif schema is not None:
            properties = dict(zip(keys or (), settings or (), strict=True))
            described = {
                "schemaString": schema,
                "partitionColumns": columns or [],
                "configuration": properties,
            }
            yield Action(meta_data=described)
        else:
            yield Action(protocol={"minReaderVersion": reader})


def quoted(text: str) -> str:
    """Return the text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
