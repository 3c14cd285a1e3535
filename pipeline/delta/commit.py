"""A commit: what it does to a table, and its content, one action of JSON a line.

A commit says which versions of transaction identifiers it stands behind, and is created only after
a version at which they are as it says. Nobody else compares values: another engine's append moves
an identifier whatever it was.

A commit is read into `Action`, which has only the fields that somebody here needs. Neither Arrow
nor delta-rs is imported: commands that only ask DuckDB read logs by this too. Source: Delta's
PROTOCOL.md, "Actions".
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.schemas.unreadable import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from group_coordinator.pipeline.delta.data_files import DataFile

ENGINE = "group-coordinator"
# The field of commitInfo that says which version each transaction identifier had before the commit,
# null for one that was never set. The commit stands only behind these versions.
EXPECTED = "expectedVersions"


class NotWhole(OSError):
    """A file of a table of which a part was read: a later read may find the rest."""


# --- what is read ---------------------------------------------------------------------------------


class _NamedFile(Struct, frozen=True, rename="camel"):
    path: str

    @property
    def file(self) -> str:
        """The path below the table's root."""
        return unquote(self.path)


class AddedFile(_NamedFile, frozen=True):
    """A file that a commit adds; `path` is as the log has it, encoded as a URL. Times in ms.

    `size`, bytes, is None where another engine has left it out: it is not known, and not 0. `stats`
    is JSON. `tags`: what else its writer says of it (`pipeline.delta.data_files.Layout`).
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
    """The version to which an application has come."""

    app_id: str
    version: int


class Action(Struct, rename="camel"):
    """One line of a commit; exactly one field is set, or none for an action that is not needed."""

    add: AddedFile | None = None
    remove: RemovedFile | None = None
    txn: Transaction | None = None
    # Verbatim: a description that was read and written anew is another one to Spark.
    meta_data: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None
    # Of any type: another engine may mean something else by the names.
    commit_info: Any = None


class _Type(Struct, rename="camel"):
    """A nested type of a schema, of whichever kind."""

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
    """What is read of a table's description wherever it is known."""

    schema_string: str | None = None
    partition_columns: list[str] | None = None
    configuration: dict[str, str] | None = None


class _Protocol(Struct, rename="camel"):
    """What is read of a table's protocol wherever it is known."""

    min_reader_version: int = 0
    min_writer_version: int = 0
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


_decode_action = msgspec.json.Decoder(Action).decode
_decode_schema = msgspec.json.Decoder(_Type).decode
_encode = msgspec.json.Encoder().encode


def parse_commit(content: bytes) -> list[Action]:
    """Return the actions of a commit's content.

    Raises NotWhole for content that is cut off or damaged. At a line's end that is told by the
    number that our commits have of their actions; of other engines' commits, and of earlier
    releases', it is not known.
    """
    lines = [line for line in content.splitlines() if line]
    if not lines:
        raise NotWhole("a commit is empty")
    try:
        actions = [_decode_action(line) for line in lines]
        _check_descriptions(actions)
    except UNREADABLE as error:
        raise NotWhole(f"a commit is cut off or damaged: {error}") from error
    info = actions[0].commit_info
    is_ours = isinstance(info, dict) and info.get("engineInfo") == ENGINE
    if is_ours and info.get("numActions") not in (None, len(lines)):
        raise NotWhole(f"a commit has {len(lines)} of {info['numActions']} actions")
    return actions


def _check_descriptions(actions: Iterable[Action]) -> None:
    """Raise what msgspec raises of a description that is not one.

    The description stays verbatim, so whoever reads a property of it later takes its type for good.
    """
    for action in actions:
        if action.protocol is not None:
            msgspec.convert(action.protocol, _Protocol)
        if action.meta_data is not None:
            described = msgspec.convert(action.meta_data, _Description)
            if described.schema_string:
                _decode_schema(described.schema_string)


# --- what is written ------------------------------------------------------------------------------


class Move(NamedTuple):
    """A transaction identifier that goes from one version to another, lower or higher.

    `expected` None: it was never set.
    """

    app_id: str
    expected: int | None
    to: int


class Bound(NamedTuple):
    """A transaction identifier that is read only: it is at most at this version, or never set."""

    app_id: str
    at_most: int


class Changes(Struct, frozen=True):
    """What one commit is to do to a table.

    `data_change` False says that the files added have the rows of the files removed. `moves` and
    `bounds` hold at the version after which the commit is created; each identifier is in one of
    them, once.
    """

    add: Sequence[DataFile] = ()
    remove: Sequence[DataFile] = ()
    moves: Sequence[Move] = ()
    bounds: Sequence[Bound] = ()
    data_change: bool = True

    def commit(self, expected: Mapping[str, int | None], flushed: bool) -> Commit:
        """Return the commit that does it; see `Commit`."""
        now_ms = clock_ms()
        actions = [txn_action(each.app_id, each.to, now_ms) for each in self.moves]
        actions += [remove_action(file, now_ms, self.data_change) for file in self.remove]
        actions += [add_action(file, self.data_change) for file in self.add]
        return Commit(actions, not self.remove, flushed, expected)


class Commit:
    """The actions of one commit, which is created under the first version that is free.

    `expected`: the version that each transaction identifier it stands behind has at its
    predecessor, None for one that was never set; another one makes the commit void where it comes
    late (`pipeline.delta.log_trim`).

    `may_stand` is whether the commit may be in the table: False until the first attempt to create
    it, and again once another writer's commit was read under the version of that attempt.

    With `flushed` the content is on the disk before it has the version's name, and the name once it
    is created: a loss of power leaves the whole commit or none of it.
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
        # As everybody will read them.
        self.actions = parse_commit(self.content)
        self.flushed = flushed
        self.may_stand = False


def encode_commit(actions: Sequence[dict[str, Any]]) -> bytes:
    """Return the content of a commit: a line for each action."""
    return b"\n".join(map(_encode, actions))


def commit_info(is_blind_append: bool, others: int, operation: str = "WRITE") -> dict[str, Any]:
    """Return the action that says who commits; a blind append depends on nothing that was read.

    It is a commit's first, and `others` is how many actions follow it.
    """
    info = {
        "timestamp": clock_ms(),
        "operation": operation,
        "operationParameters": {"mode": "Append"},
        "isBlindAppend": is_blind_append,
        "engineInfo": ENGINE,
        # Each content is another one, also of two commits that say the same. Spark's name for it.
        "txnId": str(uuid.uuid4()),
        "numActions": 1 + others,
    }
    return {"commitInfo": info}


def txn_action(app_id: str, version: int, now_ms: int) -> dict[str, Any]:
    """Return the action that records the version which an application has written."""
    return {"txn": {"appId": app_id, "version": version, "lastUpdated": now_ms}}


def add_action(file: DataFile, data_change: bool = True) -> dict[str, Any]:
    """Return the action that adds a file; `data_change` False says that its rows are not new.

    A file without statistics has the number of its rows for these.
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
