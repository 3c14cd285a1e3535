"""Keeping the log of a consumed table short: whoever opens the table lists its log.

Listing a log folder takes 5 ms for a hundred files, 80 ms for 6,000, 470 ms for 36,000, which is an
hour of ten commits a second. So a commit that the consumer has read and a Delta checkpoint holds is
deleted at once instead of by age. A commit that the consumer has not read stays, however long the
consumer is away. Only for tables in a local folder: an object store lists from a name on.

A reader lists the log, chooses the newest Delta checkpoint, and then opens the files that it has
chosen. So the files that a new checkpoint makes superfluous stay for another `GRACE_S`: no reader
takes that long between the listing and the opening. The checkpoint's age is that against the newest
file of the log: both times are the store's, and no other clock takes part.

A writer that took longer than that has its commit brought to the end of the log
(`pipeline.delta.late_commits`). For that a commit is deleted only after all older ones.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from group_coordinator.pipeline.delta.late_commits import bring, late_commits

log = logging.getLogger(__name__)

GRACE_S = 30.0
_VERSION_DIGITS = 20
_CHECKPOINT = ".checkpoint.parquet"
_COMMIT = ".json"


def trim_log(table: Path, consumed: int, grace_s: float | None = None) -> int:
    """Delete the log files of versions below `consumed` that a checkpoint holds; return how many.

    Nothing is deleted while the table has no Delta checkpoint older than `grace_s` seconds, by
    default GRACE_S. Readers of the newest version, and of the versions from `consumed` on, lose
    nothing; time travel to earlier versions ends. Raises LogGone, CommitStateUnknown, DeltaError
    and OSError.
    """
    versions: list[tuple[int, str]] = []
    commits: list[int] = []
    checkpoints: list[tuple[int, float]] = []
    with os.scandir(table / "_delta_log") as entries:
        for entry in entries:
            digits = entry.name[:_VERSION_DIGITS]
            if not digits.isdigit():
                continue
            versions.append((int(digits), entry.path))
            if entry.name[_VERSION_DIGITS:] == _COMMIT:
                commits.append(int(digits))
            if entry.name[_VERSION_DIGITS:] == _CHECKPOINT:
                checkpoints.append((int(digits), entry.stat().st_mtime))
    if not checkpoints:
        return 0
    late = late_commits(table / "_delta_log", sorted(commits))
    for version in late:
        bring(table, version)
    newest_s = max(os.stat(max(versions)[1]).st_mtime, *(written_s for _, written_s in checkpoints))
    latest_s = newest_s - (GRACE_S if grace_s is None else grace_s)
    held = max((version for version, written_s in checkpoints if written_s <= latest_s), default=0)
    superfluous = [
        path
        for version, path in sorted(versions)
        if version < min(consumed, held) and version not in late
    ]
    for path in superfluous:
        Path(path).unlink(missing_ok=True)
    return len(superfluous)
