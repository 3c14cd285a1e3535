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

from group_coordinator.pipeline.delta.commit import EXPECTED, Action, Commit, parse_commit
from group_coordinator.pipeline.delta.log import commit_path
from group_coordinator.pipeline.delta.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

_PLAIN = ("add", "txn", "commitInfo")


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
    CommitStateUnknown, and other OSErrors; then it is tried again.
    """
    log_folder = table / "_delta_log"
    late = commit_path(log_folder, version)
    content = late.read_bytes()
    actions = parse_commit(content)
    lines: list[dict[str, Any]] = [msgspec.json.decode(line) for line in content.splitlines()]
    if any(name not in _PLAIN for line in lines for name in line):
        log.error(
            "version %d of %s is lost: it came after the log was cleaned up beyond it, and does "
            "more than append; what it was to do is to be done again",
            version,
            table,
        )
        late.rename(log_folder / f".late-{late.name}")
        return None
    brought = _bring(table, lines, actions)
    late.unlink()
    if brought is not None:
        log.warning(
            "version %d of %s came after the log was cleaned up beyond it: it is version %d now",
            version,
            table,
            brought,
        )
    return brought


def _bring(table: Path, lines: list[dict[str, Any]], actions: list[Action]) -> int | None:
    expected = _expected(actions)
    rest = [line for line in lines if "commitInfo" not in line]
    snapshot = Snapshot(str(table))
    while True:
        snapshot.follow()
        if _has(snapshot, table, actions, expected):
            return None
        commit = Commit(rest, expected=expected)
        try:
            snapshot.create(commit)
        except FileExistsError:
            continue
        return snapshot.state.version


def _expected(actions: Sequence[Action]) -> dict[str, int | None]:
    """The versions that the commit stands behind; none of another engine's commit."""
    infos = (action.commit_info for action in actions)
    ours = (info for info in infos if isinstance(info, dict) and EXPECTED in info)
    return next((info[EXPECTED] for info in ours), {})


def _has(
    snapshot: Snapshot, table: Path, actions: Sequence[Action], expected: Mapping[str, int | None]
) -> bool:
    """Whether the table has the commit's files or transactions, or it counts as not written.

    It does where its files are gone, and where a version that it stands behind is another one.
    """
    paths = [action.add.file for action in actions if action.add is not None]
    if any(path in snapshot.state.files or not (table / path).exists() for path in paths):
        return True
    if expected:
        return snapshot.versions(expected) != expected
    written = [
        (snapshot.last_version(action.txn.app_id), action.txn.version)
        for action in actions
        if action.txn is not None
    ]
    if paths:
        return any(newest == version for newest, version in written)
    return any(newest >= version for newest, version in written)
