"""A commit: its changes to a table, and its content, one JSON action per line.

A commit states the versions of transaction identifiers that it depends on. It is created only after
a version at which they have these values. Other engines do not compare them: their appends move an
identifier whatever its value.

A commit is read into `Action`, which has only the fields that this project uses. Neither Arrow nor
delta-rs is imported, because commands that only query DuckDB read logs with this module. Source:
Delta's PROTOCOL.md, "Actions".
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.schemas.decoding import DECODE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from group_coordinator.pipeline.delta.data_file import DataFile

ENGINE = "group-coordinator"
# The field of commitInfo with the version of each transaction identifier before the commit; null
# for one that was never set. The commit is valid only after these versions.
EXPECTED = "expectedVersions"


class NotWhole(OSError):
    """A file of a table that could be read only in part; a later read may succeed."""


# --- reading --------------------------------------------------------------------------------------


class _NamedFile(Struct, frozen=True, rename="camel"):
    path: str

    @property
    def file(self) -> str:
        """The path below the table's root."""
        return unquote(self.path)


class AddedFile(_NamedFile, frozen=True):
    """A file that a commit adds; `path` is as the log has it, encoded as a URL. Times in ms.

    `size` (bytes) is None if another engine omitted it: then it is unknown, not 0. `stats` is JSON.
    `tags` are the writer's tags (`pipeline.delta.data_file.Layout`).
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
    """The version that an application has reached."""

    app_id: str
    version: int


class Action(Struct, rename="camel"):
    """One line of a commit; exactly one field is set, or none for an action that is not needed."""

    add: AddedFile | None = None
    remove: RemovedFile | None = None
    txn: Transaction | None = None
    # Verbatim: after decoding and encoding, Spark may see a different table description.
    meta_data: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None
    # Of any type: another engine may use these names differently.
    commit_info: Any = None


class _Type(Struct, rename="camel"):
    """A nested type of a schema: a struct, an array or a map."""

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
    """The fields of a table's description (`metaData`) that this project reads."""

    schema_string: str | None = None
    partition_columns: list[str] | None = None
    configuration: dict[str, str] | None = None


class _Protocol(Struct, rename="camel"):
    """The fields of a table's protocol that this project reads."""

    min_reader_version: int = 0
    min_writer_version: int = 0
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


_decode_action = msgspec.json.Decoder(Action).decode
_decode_schema = msgspec.json.Decoder(_Type).decode
_encode = msgspec.json.Encoder().encode


def parse_commit(content: bytes) -> list[Action]:
    """Return the actions of a commit's content.

    Raises NotWhole for truncated or damaged content. Truncation at the end of a line is detected by
    `numActions` in commits of this project. It is not detected in commits of other engines or of
    earlier releases.
    """
    lines = [line for line in content.splitlines() if line]
    if not lines:
        raise NotWhole("a commit is empty")
    try:
        actions = [_decode_action(line) for line in lines]
        _check_descriptions(actions)
    except DECODE_ERRORS as error:
        raise NotWhole(f"a commit is cut off or damaged: {error}") from error
    info = actions[0].commit_info
    is_ours = isinstance(info, dict) and info.get("engineInfo") == ENGINE
    if is_ours and info.get("numActions") not in (None, len(lines)):
        raise NotWhole(f"a commit has {len(lines)} of {info['numActions']} actions")
    return actions


def removes_files(content: bytes) -> bool:
    """Return whether a commit's content may remove files, without parsing it."""
    return b'"remove":' in content


def _check_descriptions(actions: Iterable[Action]) -> None:
    """Raise msgspec's error for an invalid description or protocol.

    The fields stay verbatim in the action, so later readers of a property rely on its type.
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
    """A transaction identifier that changes from one version to another, lower or higher.

    `expected` None: it was never set.
    """

    app_id: str
    expected: int | None
    to: int


class Bound(NamedTuple):
    """A transaction identifier that is only read: its version is at most this, or was never set."""

    app_id: str
    at_most: int


class Changes(Struct, frozen=True):
    """The changes of one commit to a table.

    `data_change` False: the added files have the rows of the removed files. `moves` and `bounds`
    must hold at the version after which the commit is created. Each identifier is in one of them,
    once.
    """

    add: Sequence[DataFile] = ()
    remove: Sequence[DataFile] = ()
    moves: Sequence[Move] = ()
    bounds: Sequence[Bound] = ()
    data_change: bool = True

    def commit(self, expected: Mapping[str, int | None], flushed: bool) -> Commit:
        """Return the commit that makes these changes; see `Commit`."""
        now_ms = clock_ms()
        actions = [txn_action(each.app_id, each.to, now_ms) for each in self.moves]
        actions += [remove_action(file, now_ms, self.data_change) for file in self.remove]
        actions += [add_action(file, self.data_change) for file in self.add]
        return Commit(actions, not self.remove, flushed, expected)


class Commit:
    """The actions of one commit, which is created under the first free version.

    `expected` maps each transaction identifier that the commit depends on to its version before the
    commit; None if it was never set. If the commit comes late and a version differs, the commit is
    void (`pipeline.delta.log_trim`).

    `may_be_committed` says whether the commit may be in the table. It is False until the first
    attempt to create the commit. It is False again once another writer's commit was read under that
    version.

    With `flushed` the content is flushed before the file gets the version's name, and the name
    after that. So a power loss leaves the whole commit or no part of it.
    """

    def __init__(
        self,
        actions: Sequence[dict[str, Any]],
        is_blind_append: bool = True,
        flushed: bool = True,
        expected: Mapping[str, int | None] | None = None,
    ) -> None:
        info = commit_info(is_blind_append, len(actions))
        if expected:
            info["commitInfo"][EXPECTED] = dict(expected)
        self.content = encode_commit([info, *actions])
        # As all readers will see them.
        self.actions = parse_commit(self.content)
        self.flushed = flushed
        self.may_be_committed = False


def encode_commit(actions: Sequence[dict[str, Any]]) -> bytes:
    """Return the content of a commit: a line for each action."""
    return b"\n".join(map(_encode, actions))


def commit_info(is_blind_append: bool, others: int, operation: str = "WRITE") -> dict[str, Any]:
    """Return the action that names the committing engine; a blind append depends on no read.

    It is the first action of a commit, and `others` is the number of actions that follow it.
    """
    info = {
        "timestamp": clock_ms(),
        "operation": operation,
        "operationParameters": {"mode": "Append"},
        "isBlindAppend": is_blind_append,
        "engineInfo": ENGINE,
        # Makes the contents of any two commits differ. Spark's name for it.
        "txnId": str(uuid.uuid4()),
        "numActions": 1 + others,
    }
    return {"commitInfo": info}


def txn_action(app_id: str, version: int, now_ms: int) -> dict[str, Any]:
    """Return the action that records the version that an application has written."""
    return {"txn": {"appId": app_id, "version": version, "lastUpdated": now_ms}}


def add_action(file: DataFile, data_change: bool = True) -> dict[str, Any]:
    """Return the action that adds a file; `data_change` False says that its rows are not new.

    A file without statistics gets its number of rows as `stats`.
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
    """Return the action that removes a file; `data_change` False says that its rows stay."""
    removed = {
        "path": file.path,
        "deletionTimestamp": deleted_ms,
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": file.partition,
        "size": file.size,
    }
    return {"remove": removed}
