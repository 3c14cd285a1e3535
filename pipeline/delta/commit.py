"""Commits: the changes that a commit makes, and its content, one JSON action per line.

A commit may depend on transaction identifiers (Delta's `txn.appId`): it is created only if they
have expected versions. Other engines compare no versions before they set an identifier.

`Action` has only the fields that this project uses. Neither Arrow nor delta-rs is imported, for
commands that only query DuckDB. Source: Delta's PROTOCOL.md, "Actions".
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.schemas.decoding import DECODE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from group_coordinator.pipeline.delta.data_file import DataFile

ENGINE = "group-coordinator"
# A field of commitInfo: the version of each identifier that the commit depends on, before the
# commit; null if it was never set.
EXPECTED = "expectedVersions"
# The fields of commitInfo that describe a commit in the table's history (DESCRIBE HISTORY), by the
# names of Delta's DeltaOperations. Spark reads parameters and metrics as maps of strings: a list is
# JSON within a string.
Operation = Mapping[str, Any]
_OPERATION = ("operation", "operationParameters", "operationMetrics")
APPEND: Operation = {"operation": "WRITE", "operationParameters": {"mode": "Append"}}


class NotWhole(OSError):
    """A file of a table that was read only in part; a later read may succeed."""


# --- reading --------------------------------------------------------------------------------------


class _NamedFile(Struct, frozen=True, rename="camel"):
    path: str

    @property
    def file(self) -> str:
        """The path below the table's root."""
        return unquote(self.path)


class AddedFile(_NamedFile, frozen=True):
    """A file that a commit adds; `path` is URL-encoded, as in the log. Times in ms.

    `size` (bytes) is None, which means unknown, if another engine omitted it. `stats` is JSON.
    The writer of the file chooses its `tags` (`pipeline.delta.data_file.Layout`).
    """

    size: int | None = None
    modification_time: int = 0
    partition_values: dict[str, str | None] = {}
    data_change: bool = True
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: dict[str, Any] | None = None


class RemovedFile(_NamedFile, frozen=True):
    """A file that a commit removes."""

    data_change: bool = True


class Transaction(Struct, frozen=True, rename="camel"):
    """The version that an application has reached (Delta's `txn` action)."""

    app_id: str
    version: int


class Action(Struct, rename="camel"):
    """One line of a commit. One field is set; none for an action that this project does not use."""

    add: AddedFile | None = None
    remove: RemovedFile | None = None
    txn: Transaction | None = None
    # Verbatim: Spark may take a description that was decoded and encoded again for another one.
    meta_data: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None
    # Any JSON: another engine may give these names other types.
    commit_info: Any = None


class _Type(Struct, rename="camel"):
    fields: list[_Field] = []
    element_type: str | _Type | None = None
    key_type: str | _Type | None = None
    value_type: str | _Type | None = None


class _Field(Struct):
    name: str
    type: str | _Type
    nullable: bool
    metadata: dict[str, Any]


class _Description(Struct, rename="camel"):
    schema_string: str | None = None
    partition_columns: list[str] | None = None
    configuration: dict[str, str] | None = None


class _Protocol(Struct, rename="camel"):
    min_reader_version: int = 0
    min_writer_version: int = 0
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


_decode_action = msgspec.json.Decoder(Action).decode
_decode_schema = msgspec.json.Decoder(_Type).decode
_encode = msgspec.json.Encoder().encode


def parse_commit(content: bytes) -> list[Action]:
    """Return the actions of a commit's content.

    Raises NotWhole for truncated or damaged content. A cut at the end of a line is detected only in
    commits of this project, by their `numActions`.
    """
    lines = [line for line in content.splitlines() if line]
    if not lines:
        raise NotWhole("the commit is empty")
    try:
        actions = [_decode_action(line) for line in lines]
        _check_descriptions(actions)
    except DECODE_ERRORS as error:
        raise NotWhole(f"the commit is truncated or damaged: {error}") from error
    info = actions[0].commit_info
    is_ours = isinstance(info, dict) and info.get("engineInfo") == ENGINE
    if is_ours and info.get("numActions") not in (None, len(lines)):
        raise NotWhole(f"the commit has {len(lines)} of {info['numActions']} actions")
    return actions


def removes_files(content: bytes) -> bool:
    """Return whether a commit may remove files, by searching its content without parsing it."""
    return b'"remove":' in content


def _check_descriptions(actions: Iterable[Action]) -> None:
    """Raise msgspec's error for a metadata or protocol action with a field of the wrong type.

    The action keeps the fields verbatim, so later readers rely on their types.
    """
    for action in actions:
        if action.protocol is not None:
            msgspec.convert(action.protocol, _Protocol)
        if action.meta_data is not None:
            described = msgspec.convert(action.meta_data, _Description)
            if described.schema_string:
                _decode_schema(described.schema_string)


# --- writing --------------------------------------------------------------------------------------


class Move(NamedTuple):
    """A change of a transaction identifier from the version `expected` to `to`, higher or lower.

    The commit is refused if the table has another version than `expected` (None: never set).
    """

    app_id: str
    expected: int | None
    to: int


class Bound(NamedTuple):
    """A condition on an identifier that the commit does not change: unset, or at most `at_most`."""

    app_id: str
    at_most: int


class Changes(Struct, frozen=True):
    """The changes of one commit to a table.

    `moves` and `bounds` must hold at the version before the commit; an identifier may occur once.
    `data_change` False means that the added files hold the rows of the removed ones. `predicate`
    says which rows are removed, in SQL or in words. `operation` is the one for the table's history;
    None derives it from the changes.
    """

    add: Sequence[DataFile] = ()
    remove: Sequence[DataFile] = ()
    moves: Sequence[Move] = ()
    bounds: Sequence[Bound] = ()
    data_change: bool = True
    predicate: str = ""
    operation: Operation | None = None

    def commit(self, expected: Mapping[str, int | None], flushed: bool) -> Commit:
        """Return the commit that makes these changes; `expected` and `flushed` as in `Commit`."""
        now_ms = clock_ms()
        actions = [txn_action(each.app_id, each.to, now_ms) for each in self.moves]
        actions += [remove_action(file, now_ms, self.data_change) for file in self.remove]
        actions += [add_action(file, self.data_change) for file in self.add]
        operation = self._operation() if self.operation is None else self.operation
        return Commit(actions, not self.remove, flushed, expected, operation)

    def _operation(self) -> Operation:
        """Return the operation that Delta's own engines record for such changes."""
        if self.remove:
            name = "DELETE" if self.data_change else "OPTIMIZE"
            predicate = _encode([self.predicate] if self.predicate else []).decode()
            return describe_operation(name, {"predicate": predicate}, self._metrics())
        if self.add:
            return APPEND
        app_ids = _encode([move.app_id for move in self.moves]).decode()
        return describe_operation("Manual Update", {"appIds": app_ids})

    def _metrics(self) -> dict[str, str]:
        """Return the metrics of a rewrite; those of rows only if all files have their number."""
        metrics = {
            "numRemovedFiles": len(self.remove),
            "numRemovedBytes": sum(file.size for file in self.remove),
            "numAddedFiles": len(self.add),
            "numAddedBytes": sum(file.size for file in self.add),
        }
        counts = [file.records for file in (*self.remove, *self.add)]
        if self.data_change and None not in counts:
            copied = sum(file.records or 0 for file in self.add)
            removed = sum(file.records or 0 for file in self.remove)
            metrics |= {"numCopiedRows": copied, "numDeletedRows": removed - copied}
        return {name: str(value) for name, value in metrics.items()}


class Commit:
    """The content of one commit, to be created as the next free version.

    `expected` maps each transaction identifier that the commit depends on to its version before the
    commit, None if it was never set. A late commit, with other versions in the table, is void
    (`pipeline.delta.log_trim`).

    `may_be_committed` says whether the commit may be in the table. It is False before the first
    attempt, and after an attempt that certainly failed, for example because the version is taken.

    With `flushed` the content is flushed before the file gets its name, and the name afterwards. So
    a power loss leaves the whole commit or nothing.
    """

    def __init__(
        self,
        actions: Sequence[dict[str, Any]],
        is_blind_append: bool = True,
        flushed: bool = True,
        expected: Mapping[str, int | None] | None = None,
        operation: Operation = APPEND,
    ) -> None:
        info = commit_info(operation, is_blind_append, len(actions))
        if expected:
            info["commitInfo"][EXPECTED] = dict(expected)
        self.content = encode_commit([info, *actions])
        # The actions as readers will decode them.
        self.actions = parse_commit(self.content)
        self.flushed = flushed
        self.may_be_committed = False


def encode_commit(actions: Sequence[dict[str, Any]]) -> bytes:
    """Return the content of a commit: one line for each action."""
    return b"\n".join(map(_encode, actions))


def describe_operation(
    name: str, parameters: Mapping[str, str | bool], metrics: Mapping[str, str] | None = None
) -> Operation:
    """Return an operation with its parameters and metrics, by Delta's names."""
    described: dict[str, Any] = {"operation": name, "operationParameters": parameters}
    return described if metrics is None else {**described, "operationMetrics": metrics}


def streaming_update(query_id: str, epoch_id: int) -> Operation:
    """Return the operation of a streaming query's batch, which Delta calls its epoch."""
    parameters = {"outputMode": "Append", "queryId": query_id, "epochId": str(epoch_id)}
    return describe_operation("STREAMING UPDATE", parameters)


def operation_in(actions: Iterable[Action]) -> Operation:
    """Return the operation that a commit of any engine states; APPEND if it states none."""
    infos = [each.commit_info for each in actions if isinstance(each.commit_info, dict)]
    found = {name: info[name] for info in infos for name in _OPERATION if name in info}
    return found if "operation" in found else APPEND


def commit_info(operation: Operation, is_blind_append: bool, others: int) -> dict[str, Any]:
    """Return a commit's first action, which names this engine and the operation.

    `others` is the number of the other actions. A blind append depends on no read of the table.
    """
    info = {
        "timestamp": clock_ms(),
        **operation,
        "isBlindAppend": is_blind_append,
        "engineInfo": ENGINE,
        # It makes the contents of any two commits differ. Spark uses the same name.
        "txnId": str(uuid.uuid4()),
        "numActions": 1 + others,
    }
    return {"commitInfo": info}


def txn_action(app_id: str, version: int, now_ms: int) -> dict[str, Any]:
    """Return the action that sets an application's version."""
    return {"txn": {"appId": app_id, "version": version, "lastUpdated": now_ms}}


def add_action(file: DataFile, data_change: bool = True) -> dict[str, Any]:
    """Return the action that adds a file. `data_change` False: its rows are not new.

    If the file has no statistics, `stats` has its number of rows.
    """
    added: dict[str, Any] = {
        "path": file.path,
        "partitionValues": file.partition,
        "size": file.size,
        "modificationTime": file.modified_ms,
        "dataChange": data_change,
        "stats": file.stats or _encode({"numRecords": file.records}).decode(),
    }
    if file.tags:
        added["tags"] = file.tags
    return {"add": added}


def remove_action(file: DataFile, deleted_ms: int, data_change: bool) -> dict[str, Any]:
    """Return the action that removes a file. `data_change` False: its rows stay in other files."""
    removed = {
        "path": file.path,
        "deletionTimestamp": deleted_ms,
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": file.partition,
        "size": file.size,
    }
    return {"remove": removed}
