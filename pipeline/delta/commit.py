"""What one commit does to a table: files in, files out, transaction identifiers moved.

A commit says which versions of transaction identifiers it stands behind, and is created only after
a version at which they are as it says. Nobody else compares values: another engine's append moves
an identifier whatever it was.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.actions import COMMIT_ID, ENGINE, EXPECTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from group_coordinator.pipeline.delta.data_files import DataFile


# A data file that no commit names yet may be committed until it is so old, s. VACUUM takes whole
# hours, and spares younger files: of a writer that stood still for longer, as on a laptop that
# slept, the file may be gone, and a table of which a file is gone cannot be read.
COMMITTABLE_S = 1_800.0

_encode = msgspec.json.Encoder().encode


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

    @property
    def app_ids(self) -> list[str]:
        """The identifiers that are moved, or read."""
        return [*(each.app_id for each in self.moves), *(each.app_id for each in self.bounds)]

    def are_forbidden(self, versions: Mapping[str, int | None]) -> bool:
        """Whether the versions of the identifiers forbid them."""
        return any(versions[each.app_id] != each.expected for each in self.moves) or any(
            (versions[each.app_id] or 0) > each.at_most for each in self.bounds
        )

    def actions(self) -> list[dict[str, Any]]:
        """Return the actions of the commit."""
        now_ms = clock_ms()
        found = [txn_action(each.app_id, each.to, now_ms) for each in self.moves]
        found += [remove_action(file, now_ms, self.data_change) for file in self.remove]
        found += [add_action(file, self.data_change) for file in self.add]
        return found


class Commit:
    """The actions of one commit, which is created under the first version that is free.

    `expected`: the version that each transaction identifier it stands behind has at its
    predecessor, None for one that was never set; another one makes the commit void where it comes
    late (`pipeline.delta.late_commits`).

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
        # The identifier makes each content unique, also of two commits that say the same.
        info = commit_info(is_blind_append, str(uuid.uuid4()), len(actions))
        if expected:
            info["commitInfo"][EXPECTED] = dict(expected)
        self.content = encode_commit([info, *actions])
        self.flushed = flushed
        self.may_stand = False
        self.added = {each["add"]["path"] for each in actions if "add" in each}
        self.removed = {each["remove"]["path"] for each in actions if "remove" in each}


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


def txn_action(app_id: str, version: int, now_ms: int) -> dict[str, Any]:
    """Return the action that records the version which an application has written."""
    return {"txn": {"appId": app_id, "version": version, "lastUpdated": now_ms}}


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
