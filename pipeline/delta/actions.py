"""The actions of a commit, as Delta's protocol names them: one line of JSON each.

A commit is read into `Action`, which has only the fields that somebody here needs. Neither Arrow
nor delta-rs is imported: commands that only ask DuckDB read logs by this too. Source: Delta's
PROTOCOL.md, "Actions".
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import msgspec

ENGINE = "group-coordinator"
# The field of commitInfo that tells one commit from any other, as in Spark's commits.
COMMIT_ID = "txnId"
# The field of commitInfo that says which version each transaction identifier had before the commit,
# null for one that was never set. The commit stands only behind these versions.
EXPECTED = "expectedVersions"


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
