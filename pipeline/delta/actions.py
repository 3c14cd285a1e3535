"""The actions of a commit, as Delta's protocol names them: one line of JSON each.

A commit is read into `Action`, which has only the fields that somebody here needs, and written from
dictionaries, which have every field that the protocol requires. Neither Arrow nor delta-rs is
imported: commands that only ask DuckDB read logs by this too. Source: Delta's PROTOCOL.md,
"Actions".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from group_coordinator.pipeline.clock import clock_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.delta.data_files import DataFile

ENGINE = "group-coordinator"
# The field of commitInfo that tells one commit from any other, as in Spark's commits.
COMMIT_ID = "txnId"
# The field of commitInfo that says which version each transaction identifier had before the commit,
# null for one that was never set. The commit stands only behind these versions.
EXPECTED = "expectedVersions"

_encode = msgspec.json.Encoder().encode


class NotWhole(OSError):
    """A file of a table of which a part was read: a later read may find the rest."""


class AddedFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file that a commit adds; `path` is as the log has it, encoded as a URL. Times in ms.

    `size`, bytes, is None where another engine has left it out: it is not known, and not 0. `stats`
    is JSON. `tags`: what else its writer says of it (`pipeline.delta.layout`).
    """

    path: str
    size: int | None = None
    modification_time: int = 0
    partition_values: dict[str, str | None] = {}
    data_change: bool = True
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: dict[str, Any] | None = None

    @property
    def file(self) -> str:
        """The path below the table's root."""
        return unquote(self.path)


class RemovedFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file that a commit removes."""

    path: str
    data_change: bool = True

    @property
    def file(self) -> str:
        """The path below the table's root."""
        return unquote(self.path)


class Transaction(msgspec.Struct, frozen=True, rename="camel"):
    """The version to which an application has come."""

    app_id: str
    version: int


class Action(msgspec.Struct, rename="camel"):
    """One line of a commit; exactly one field is set, or none for an action that is not needed."""

    add: AddedFile | None = None
    remove: RemovedFile | None = None
    txn: Transaction | None = None
    # Verbatim: a description that was read and written anew is another one to Spark.
    meta_data: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None
    # Of any type: another engine may mean something else by the names.
    commit_info: Any = None


_decode_action = msgspec.json.Decoder(Action).decode


def parse_commit(content: bytes) -> list[Action]:
    """Return the actions of a commit's content.

    Raises NotWhole for content that is cut off. At a line's end that is told by the number that our
    commits have of their actions; of other engines' commits, and of earlier releases', it is not
    known.
    """
    lines = [line for line in content.splitlines() if line]
    if not lines:
        raise NotWhole("a commit is empty")
    try:
        actions = [_decode_action(line) for line in lines]
    except msgspec.MsgspecError as error:
        raise NotWhole(f"a commit is cut off: {error}") from error
    info = actions[0].commit_info
    is_ours = isinstance(info, dict) and info.get("engineInfo") == ENGINE
    if is_ours and info.get("numActions") not in (None, len(lines)):
        raise NotWhole(f"a commit has {len(lines)} of {info['numActions']} actions")
    return actions


def encode_commit(actions: Sequence[dict[str, Any]]) -> bytes:
    """Return the content of a commit: a line for each action."""
    return b"\n".join(map(_encode, actions))


def commit_info(
    is_blind_append: bool, commit_id: str, others: int, operation: str = "WRITE"
) -> dict[str, Any]:
    """Return the action that says who commits; a blind append depends on nothing that was read.

    It is a commit's first, and `others` is how many actions follow it.
    """
    info = {
        "timestamp": clock_ms(),
        "operation": operation,
        "operationParameters": {"mode": "Append"},
        "isBlindAppend": is_blind_append,
        "engineInfo": ENGINE,
        COMMIT_ID: commit_id,
        "numActions": 1 + others,
    }
    return {"commitInfo": info}


def txn_action(app_id: str, version: int) -> dict[str, Any]:
    """Return the action that records the version which an application has written."""
    return {"txn": {"appId": app_id, "version": version, "lastUpdated": clock_ms()}}


def add_action(file: DataFile, data_change: bool = True) -> dict[str, Any]:
    """Return the action that adds a file; `data_change` False says that its rows are not new."""
    added: dict[str, Any] = {
        "path": file.path,
        "partitionValues": file.partition,
        "size": file.size,
        "modificationTime": file.modified_ms,
        "dataChange": data_change,
        "stats": encode_stats(file),
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


def encode_stats(file: DataFile) -> str:
    """Return a file's statistics as JSON: the number of its rows alone if it has no others."""
    if file.stats is not None:
        return file.stats
    return _encode({"numRecords": file.records}).decode()
