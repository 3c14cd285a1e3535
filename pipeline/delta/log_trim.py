"""Trimming the log of a consumed table, because each reader that opens it lists its log.

Listing takes 5 ms for a hundred files and 470 ms for 36,000, an hour of ten commits a second. So a
commit that the consumer has read and a Delta checkpoint holds is deleted before its retention ends.
Unread commits stay, however long the consumer is away. Ages are in the store's time alone. Commits
are deleted from the oldest on, so the log has no gap. Files that a new checkpoint replaces stay for
`GRACE_S` on a disk, because a reader lists the log and then opens files, and for an hour in a
store, where trimming takes three requests.

**Late commits.** A deleted commit's name is free again. A writer that read the table before, such
as Spark's INSERT of many rows, may create it: the writer reports success, but no reader sees the
commit. In a store there are none, because no writer takes an hour. On a disk, a commit below a gap
is late if it was created after the commit above the gap.

The files and transactions of a late commit are committed again as the newest version. Three kinds
are not: a commit whose content the table has, because a process crashed before it deleted the late
file or the writer repeated it; a commit that is no append, which is logged as lost; and a void one.
A commit of this project is void if a transaction identifier differs from the version that the
commit states (`commit.EXPECTED`): for example, another appender assigned the same offsets. Other
engines state none, and their writers rely on the reported success.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from group_coordinator.pipeline.delta.commit import (
    EXPECTED,
    Action,
    Commit,
    operation_in,
    parse_commit,
)
from group_coordinator.pipeline.delta.log import commit_path, log_uri
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.snapshot import Snapshot
from group_coordinator.pipeline.delta.table import NOTE, decode_last_checkpoint, local_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

GRACE_S = 30.0
# The minimum age of a log file in a store for its deletion, s.
STORE_AGE_S = 3_600.0
# The maximum number of objects in one LIST or delete request.
_AT_ONCE = 1000
_LOG_FILE = re.compile(r"(\d{20})\.(.*)")
_CHECKPOINT, _COMMIT = "checkpoint.parquet", "json"
# The actions of an append.
_PLAIN = ("add", "txn", "commitInfo")


def trim_log(uri: str, consumed: int, grace_s: float | None = None) -> int:
    """Delete log files of versions below `consumed` that a checkpoint holds; return their number.

    Nothing is deleted until a Delta checkpoint is `grace_s` seconds old; the default is GRACE_S on
    a disk and STORE_AGE_S in a store, where one call deletes at most a thousand files. Readers of
    versions from `consumed` on are not affected; time travel to earlier versions ends. Raises
    LogGone, CommitStateUnknown, DeltaError and OSError.
    """
    folder = local_folder(uri)
    if folder is None:
        return _trim_in_store(uri, consumed, STORE_AGE_S if grace_s is None else grace_s)
    return _trim_on_disk(folder, consumed, GRACE_S if grace_s is None else grace_s)


def _trim_on_disk(table: Path, consumed: int, grace_s: float) -> int:
    versions: list[tuple[int, str]] = []
    commits: list[int] = []
    checkpoints: list[tuple[int, float]] = []
    with os.scandir(table / "_delta_log") as entries:
        for entry in entries:
            match = _LOG_FILE.fullmatch(entry.name)
            if match is None:
                continue
            version = int(match[1])
            versions.append((version, entry.path))
            if match[2] == _COMMIT:
                commits.append(version)
            if match[2] == _CHECKPOINT:
                checkpoints.append((version, entry.stat().st_mtime))
    if not checkpoints:
        return 0
    late = late_commits(table / "_delta_log", sorted(commits))
    for version in late:
        bring(table, version)
    newest_s = max(os.stat(max(versions)[1]).st_mtime, *(written_s for _, written_s in checkpoints))
    latest_s = newest_s - grace_s
    held = max((version for version, written_s in checkpoints if written_s <= latest_s), default=0)
    superfluous = [
        path
        for version, path in sorted(versions)
        if version < min(consumed, held) and version not in late
    ]
    for path in superfluous:
        Path(path).unlink(missing_ok=True)
    return len(superfluous)


def _trim_in_store(uri: str, consumed: int, age_s: float) -> int:
    store = ObjectStore(log_uri(uri))
    content = store.read(NOTE)
    checkpoint = None if content is None else decode_last_checkpoint(content)
    noted = store.look_up(NOTE)
    if checkpoint is None or noted is None:
        return 0
    before_ms = noted.modified_ms - age_s * 1000
    superfluous = []
    for each in store.list(most=_AT_ONCE):
        match = _LOG_FILE.match(each.path)
        if (
            match is None
            or int(match[1]) >= min(consumed, checkpoint.version)
            or each.modified_ms >= before_ms
        ):
            # Stop at the first file that stays, so that the log has no gap.
            break
        superfluous.append(each.path)
    if superfluous:
        store.delete(superfluous)
    return len(superfluous)


# --- late commits ---------------------------------------------------------------------------------


def late_commits(log_folder: Path, versions: Sequence[int]) -> list[int]:
    """Return the late commits of the log; `versions` are all its commits, ascending."""
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
    """Commit the content of a late commit again; return its new version.

    Returns None without a new commit if the table has the content already or the commit is void, or
    if it is no append. The late commit is deleted; one that is no append is renamed. Raises
    LogGone, CommitStateUnknown and other OSErrors; the next trim retries.
    """
    log_folder = table / "_delta_log"
    late = commit_path(log_folder, version)
    content = late.read_bytes()
    actions = parse_commit(content)
    lines: list[dict[str, Any]] = [msgspec.json.decode(line) for line in content.splitlines()]
    if any(name not in _PLAIN for line in lines for name in line):
        log.error(
            "version %d of %s is lost: it was committed after the log was cleaned up beyond it, "
            "and is not only an append: repeat its operation",
            version,
            table,
        )
        late.rename(log_folder / f".late-{late.name}")
        return None
    brought = _bring(table, lines, actions)
    late.unlink()
    if brought is not None:
        log.warning(
            "version %d of %s was committed after the log was cleaned up beyond it: it is "
            "committed again as version %d",
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
        commit = Commit(rest, expected=expected, operation=operation_in(actions))
        try:
            snapshot.create(commit)
        except FileExistsError:
            continue
        return snapshot.state.version


def _expected(actions: Sequence[Action]) -> dict[str, int | None]:
    """Return the versions that the commit depends on; {} for another engine's commit."""
    infos = (action.commit_info for action in actions)
    ours = (info for info in infos if isinstance(info, dict) and EXPECTED in info)
    return next((info[EXPECTED] for info in ours), {})


def _has(
    snapshot: Snapshot, table: Path, actions: Sequence[Action], expected: Mapping[str, int | None]
) -> bool:
    """Return whether the table has the commit's files or transactions, or the commit is void.

    It is void if any of its files is gone, or if a version that it depends on differs.
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
