"""Delta checkpoints in an object store, and the deletion of log files that they make superfluous.

A clean-up of a log lists all of it, which is a request for every thousand files: so it is done once
an hour by whoever appends. The log of a consumed table, which may be millions of files long, is
trimmed from its beginning instead: a list gives the least names first.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from deltalake.exceptions import DeltaError

from group_coordinator.pipeline.delta.checkpoint import ACTIONS_PER_COMMIT
from group_coordinator.pipeline.delta.log import NOTE, decode_last_checkpoint
from group_coordinator.pipeline.delta.object_store import Folder
from group_coordinator.pipeline.delta.store_checkpoint import write_checkpoint
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.errors import Failure

log = logging.getLogger(__name__)

CLEAN_UP_S = 3600.0
# How old a file of a consumed table's log must be to be deleted, by the store's own time, ms: far
# more than a writer takes between its last look at the log and its commit.
TRIM_AGE_MS = 3_600_000
# What one request deletes at most, and lists.
_AT_ONCE = 1000
_LOG_FILE = re.compile(r"(\d{20})\.")


def checkpoint_in_store(
    uri: str, version: int, cleans_up: bool, known: Mapping[int, bytes]
) -> None:
    """Write a Delta checkpoint if one is due, as in a local folder; clean the log up if asked to.

    `known` are the contents of commits that need not be read again. A failure is logged: the next
    checkpoint will do.
    """
    try:
        folder = Folder(f"{uri.rstrip('/')}/_delta_log")
        note = folder.read(NOTE)
        last = None if note is None else decode_last_checkpoint(note)
        is_due = last is None or version - last.version >= last.size // ACTIONS_PER_COMMIT
        if is_due and (last is None or last.version < version):
            write_checkpoint(folder, version, note, known)
        if cleans_up:
            # It may be another writer's checkpoint that is not a file of its own.
            handle = open_delta(uri)
            handle.create_checkpoint()
            handle.cleanup_metadata()
    except (DeltaError, OSError, Failure) as error:
        log.warning("no Delta checkpoint of %s: %s", uri, error)


def trim_store_log(uri: str, consumed: int, age_ms: int = TRIM_AGE_MS) -> int:
    """Delete the oldest log files, of versions below `consumed` that a checkpoint holds.

    Only what is older than the checkpoint by `age_ms` is deleted, of a thousand files at most;
    returns how many. Both times are the store's. Three requests, and one more if there is anything
    to delete. Raises OSError.
    """
    folder = Folder(f"{uri.rstrip('/')}/_delta_log")
    content = folder.read(NOTE)
    checkpoint = None if content is None else decode_last_checkpoint(content)
    noted = folder.look_up(NOTE)
    if checkpoint is None or noted is None:
        return 0
    before_ms = noted.modified_ms - age_ms
    superfluous = []
    for each in folder.list(most=_AT_ONCE):
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
        folder.delete(superfluous)
    return len(superfluous)
