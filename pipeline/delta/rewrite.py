"""A commit that takes files out of a table and puts others in, beside whoever appends to it.

A rewrite names the very files that it removes and depends on nothing else, so neither an append nor
the rewrite is a conflict for the other. The commit to a plain table is created by
`pipeline.delta.table_log`, which is fast enough to come between two appends; that to any other
table by delta-rs.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.actions import (
    add_action,
    encode_stats,
    remove_action,
    txn_action,
)
from group_coordinator.pipeline.delta.commit import Commit
from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.remote_commit import RemoteCommit
from group_coordinator.pipeline.delta.table_log import TableLog, commit_after
from group_coordinator.pipeline.errors import Failure, first_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import DeltaTable

    from group_coordinator.pipeline.delta.actions import Action
    from group_coordinator.pipeline.delta.data_files import DataFile

# A commit by delta-rs loses an attempt to each append that comes first. With delta-rs' default of
# 15 attempts, 3 of 56 rewrites beside 40 appends a second were given up.
COMMIT_RETRIES = 1_000


class RewriteConflict(Failure):
    """Another process rewrote the table meanwhile; this rewrite is not in the table."""

    def __init__(self, table: str, why: str) -> None:
        super().__init__(f"{table} was rewritten by another process meanwhile: {why}")


class Rewrite(Struct, frozen=True, dict=True):
    """Files to remove and to add in one commit; `data_change` False: the rows are the same.

    `expected`: the versions that transaction identifiers have at the version after which it is
    committed, None for one that was never set. A commit that changes one of them is a conflict.
    """

    removed: Sequence[DataFile]
    added: Sequence[DataFile]
    transactions: Sequence[Transaction] = ()
    data_change: bool = True
    expected: Mapping[str, int | None] = {}

    @property
    def is_plain(self) -> bool:
        """Whether the log has the removed paths as they are: it encodes some characters."""
        return all(quote(path, safe="/=") == path for path in self.removed_paths)

    @cached_property
    def removed_paths(self) -> frozenset[str]:
        """The removed files' paths."""
        return frozenset(file.path for file in self.removed)

    def conflict(self, others: list[Action]) -> str | None:
        """Return why the rewrite may not follow the commit `others`, None if it may."""
        app_ids = {transaction.app_id for transaction in self.transactions} | self.expected.keys()
        for other in others:
            if other.meta_data is not None or other.protocol is not None:
                return "its description was changed"
            if other.remove is not None and other.remove.path in self.removed_paths:
                return f"{other.remove.path} was removed"
            if other.txn is not None and other.txn.app_id in app_ids:
                return f"{other.txn.app_id} came to version {other.txn.version}"
        return None


def commit_to_log(
    log: TableLog, table: str, version: int, rewrite: Rewrite, flushed: bool = True
) -> None:
    """Commit to the log of a table, after all commits since `version`.

    With `flushed` a commit to a folder is on the disk when this returns.

    Raises RewriteConflict and CommitStateUnknown.
    """

    def check(others: list[Action]) -> None:
        why = rewrite.conflict(others)
        if why is not None:
            raise RewriteConflict(table, why)

    commit = Commit(_actions(rewrite), not rewrite.removed, flushed)
    commit.expect(rewrite.expected)
    try:
        commit_after(log, version, commit, check)
    except LogGone as error:
        raise RewriteConflict(table, str(error)) from error


def _actions(rewrite: Rewrite) -> list[dict[str, Any]]:
    now_ms = clock_ms()
    actions = [txn_action(each.app_id, each.version) for each in rewrite.transactions]
    actions += [remove_action(file, now_ms, rewrite.data_change) for file in rewrite.removed]
    actions += [add_action(file, rewrite.data_change) for file in rewrite.added]
    return actions


def commit_elsewhere(handle: DeltaTable, rewrite: Rewrite) -> None:
    """Commit through delta-rs. Raises RewriteConflict, CommitStateUnknown, DeltaError, OSError."""
    now_ms = clock_ms()
    actions: list[AddAction | RemoveAction] = [
        RemoveAction(
            path=file.path,
            data_change=rewrite.data_change,
            deletion_timestamp=now_ms,
            size=file.size,
            partition_values=file.partition,
        )
        for file in rewrite.removed
    ]
    actions += [
        AddAction(
            path=file.path,
            size=file.size,
            partition_values=file.partition,
            modification_time=file.modified_ms,
            data_change=rewrite.data_change,
            stats=encode_stats(file),
        )
        for file in rewrite.added
    ]
    commit = RemoteCommit(handle, list(rewrite.transactions), COMMIT_RETRIES)
    try:
        handle.create_write_transaction(
            actions,
            "append",
            handle.schema(),
            list(handle.metadata().partition_columns),
            commit_properties=commit.properties,
        )
    except (DeltaError, OSError) as error:
        if commit.stands(error):
            return
        if isinstance(error, CommitFailedError):
            raise RewriteConflict(handle.table_uri, first_line(error)) from error
        raise


def patient() -> CommitProperties:
    """Return properties by which delta-rs tries a commit again while appends come first."""
    return CommitProperties(max_commit_retries=COMMIT_RETRIES)
