"""Commits that came after their place in the log was cleaned up, brought to the log's end.

A writer reads a table's version, writes its files, and creates the next version's commit. While a
version's commit is there no other can have its name. But once it was cleaned up the name is free
again: a writer that took longer than that, such as Spark's INSERT of many rows, creates a commit
where no reader looks, and is told that it is in the table. Delta keeps the log for thirty days for
this reason; the log of a consumed table is trimmed after half a minute (`pipeline.delta.log_trim`).

A clean-up deletes from the oldest commit on, so what it leaves has no gap. A commit below a gap
that came into the folder after the one above the gap is late. Its files and transactions are
committed again, as the newest version, unless the table has them already: who brings late commits
may have been killed between that commit and the deletion of the late one, and a writer of ours
writes again what came late. Only appends can be brought; of another commit a line of the log says
that it is lost. Both times are the store's, and no other clock takes part.

A commit of ours says which versions of transaction identifiers it stands behind. Where one of them
is another now, somebody came between: such as another appender to a topic's partition, which gave
the same offsets, a later start of the node, or the writer itself, which was not told that its
commit stands and wrote it again. Then it counts as not written. Another engine was told that its
commit stands, and went on: of a stream of Spark's a newer batch says nothing of this one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from group_coordinator.pipeline.delta.actions import (
    EXPECTED,
    Action,
    decode_commit,
    parse_commit,
)
from group_coordinator.pipeline.delta.commit import Commit
from group_coordinator.pipeline.delta.data_files import data_files
from group_coordinator.pipeline.delta.log import commit_path
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.delta.table_log import FolderLog, commit_after

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from deltalake import DeltaTable

log = logging.getLogger(__name__)

_PLAIN = ("add", "txn", "commitInfo")


class _Brought(Exception):
    """Somebody else has brought the commit meanwhile."""


def late_commits(log_folder: Path, versions: Sequence[int]) -> list[int]:
    """Return which of the log's commits came late; `versions` are all commits, ascending."""
    gaps = [at for at in range(1, len(versions)) if versions[at] - versions[at - 1] > 1]
    if not gaps:
        return []
    first = max(gaps)
    above_ns = commit_path(log_folder, versions[first]).stat().st_ctime_ns
    return [
        version
        for version in versions[:first]
        if commit_path(log_folder, version).stat().st_ctime_ns > above_ns
    ]


def bring(table: Path, version: int) -> int | None:
    """Commit again what a late commit holds; return as which version, None if it is there already.

    The late commit is deleted, or kept under another name if it is no append. Raises LogGone,
    CommitStateUnknown, DeltaError and OSError; then it is tried again.
    """
    log_folder = table / "_delta_log"
    late = commit_path(log_folder, version)
    content = late.read_bytes()
    lines: list[dict[str, Any]] = decode_commit(content, msgspec.json.decode)
    if any(name not in _PLAIN for line in lines for name in line):
        log.error(
            "version %d of %s is lost: it came after the log was cleaned up beyond it, and does "
            "more than append; what it was to do is to be done again",
            version,
            table,
        )
        late.rename(log_folder / f".late-{late.name}")
        return None
    actions = parse_commit(content)
    handle = open_delta(str(table))
    expected = _expected(lines)
    brought = None
    if not _has(handle, table, actions, expected):
        brought = _commit(log_folder, handle.version(), lines, actions, expected)
    late.unlink()
    if brought is not None:
        log.warning(
            "version %d of %s came after the log was cleaned up beyond it: it is version %d now",
            version,
            table,
            brought,
        )
    return brought


def _expected(lines: Sequence[dict[str, Any]]) -> dict[str, int | None]:
    """The versions that the commit stands behind; none of another engine's commit."""
    infos = (line.get("commitInfo") for line in lines)
    ours = (info for info in infos if isinstance(info, dict) and EXPECTED in info)
    return next((info[EXPECTED] for info in ours), {})


def _has(
    handle: DeltaTable, table: Path, actions: Sequence[Action], expected: Mapping[str, int | None]
) -> bool:
    """Whether the table has the commit's files or transactions, or it counts as not written.

    It does where its files are gone, and where a version that it stands behind is another one.
    """
    there = {file.path for file in data_files(handle)}
    paths = [action.add.path for action in actions if action.add is not None]
    if any(path in there or not (table / path).exists() for path in paths):
        return True
    if expected:
        return any(
            handle.transaction_version(app_id) != version for app_id, version in expected.items()
        )
    written = [
        (handle.transaction_version(action.txn.app_id), action.txn.version)
        for action in actions
        if action.txn is not None
    ]
    if paths:
        return any(newest == version for newest, version in written)
    return any(newest is not None and newest >= version for newest, version in written)


def _commit(
    log_folder: Path,
    version: int,
    lines: Sequence[dict[str, Any]],
    actions: Sequence[Action],
    expected: Mapping[str, int | None],
) -> int | None:
    paths = {action.add.path for action in actions if action.add is not None}
    app_ids = {action.txn.app_id for action in actions if action.txn is not None}
    app_ids |= expected.keys()
    at = version

    def check(others: list[Action]) -> None:
        nonlocal at
        at += 1
        for other in others:
            if other.add is not None and other.add.path in paths:
                raise _Brought
            if other.txn is not None and other.txn.app_id in app_ids:
                raise _Brought

    commit = Commit([line for line in lines if "commitInfo" not in line], is_blind_append=True)
    commit.expect(expected)
    try:
        commit_after(FolderLog(log_folder), version, commit, check)
    except _Brought:
        return None
    return at + 1
