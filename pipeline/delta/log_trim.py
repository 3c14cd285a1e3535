"""Keeping the log of a consumed table short: whoever opens the table lists its log.

Listing a log folder takes 5 ms for a hundred files, 80 ms for 6,000, 470 ms for 36,000, which is an
hour of ten commits a second. So a commit that the consumer has read and a Delta checkpoint holds is
deleted at once instead of by age. A commit that the consumer has not read stays, however long the
consumer is away. All times are the store's, and no other clock takes part.

On a disk a reader lists the log, chooses the newest Delta checkpoint, and then opens the files that
it has chosen. So the files that a new checkpoint makes superfluous stay for another `GRACE_S`: no
reader takes that long between the listing and the opening. A writer that took longer than that has
its commit brought to the end of the log (`pipeline.delta.late_commits`). For that a commit is
deleted only after all older ones.

A store lists the least names first, a thousand in a request, so a log of any length is trimmed from
its beginning, by three requests. A commit there stays for an hour, which no writer takes between
its last look and its commit: nothing comes late.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from group_coordinator.pipeline.delta.late_commits import bring, late_commits
from group_coordinator.pipeline.delta.log import NOTE, decode_last_checkpoint, log_uri
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.table import local_folder

log = logging.getLogger(__name__)

GRACE_S = 30.0
# How old a file of a log in a store must be to be deleted, s.
STORE_AGE_S = 3_600.0
# What one request to a store deletes at most, and lists.
_AT_ONCE = 1000
_LOG_FILE = re.compile(r"(\d{20})\.(.*)")
_CHECKPOINT, _COMMIT = "checkpoint.parquet", "json"


def trim_log(uri: str, consumed: int, grace_s: float | None = None) -> int:
    """Delete the log files of versions below `consumed` that a checkpoint holds; return how many.

    Nothing is deleted while the table has no Delta checkpoint older than `grace_s` seconds, by
    default GRACE_S on a disk and STORE_AGE_S in a store, where at most a thousand files go at once.
    Readers of the newest version, and of the versions from `consumed` on, lose nothing; time travel
    to earlier versions ends. Raises LogGone, CommitStateUnknown, DeltaError and OSError.
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
            # Deleted from the oldest on: what stays has no gap.
            break
        superfluous.append(each.path)
    if superfluous:
        store.delete(superfluous)
    return len(superfluous)
