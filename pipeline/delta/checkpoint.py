"""Delta checkpoints, and the deletion of the log files that a checkpoint makes superfluous."""

from __future__ import annotations

import logging
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from group_coordinator.pipeline.delta.flush import flush
from group_coordinator.pipeline.delta.log import NOTE, last_checkpoint
from group_coordinator.pipeline.delta.table import local_folder, open_delta, refresh

log = logging.getLogger(__name__)

# A Delta checkpoint waits for one commit per so many actions of the checkpoint before.
ACTIONS_PER_COMMIT = 100


def checkpoint(folder: Path, version: int) -> None:
    """Write a Delta checkpoint and clean the log up, if one is due; takes 100 ms and more.

    A checkpoint names all files, and the files that were removed lately. So that 100,000 names are
    not written anew every few seconds, a checkpoint is due only one commit per `ACTIONS_PER_COMMIT`
    names after the checkpoint before: that costs 0.2 ms and 6 kB a commit.
    """
    try:
        last = last_checkpoint(folder / "_delta_log")
        if last is not None and version - last.version < last.size // ACTIONS_PER_COMMIT:
            return
        _write(open_delta(str(folder)))
    except (DeltaError, OSError) as error:
        # The next checkpoint will do; until then a reader replays more of the log.
        log.warning("no Delta checkpoint of %s: %s", folder, error)


def clean_log(handle: DeltaTable) -> None:
    """Write a Delta checkpoint, and delete the log files past `delta.logRetentionDuration`."""
    refresh(handle)
    _write(handle)


def _write(handle: DeltaTable) -> None:
    handle.create_checkpoint()
    folder = local_folder(handle.table_uri)
    if folder is not None:
        _force(folder / "_delta_log", handle.version())
    handle.cleanup_metadata()


def _force(log_folder: Path, version: int) -> None:
    """Force a checkpoint to the disk: the clean-up deletes the commits that it stands for."""
    for name in (f"{version:020}.checkpoint.parquet", NOTE):
        flush(log_folder / name)
    flush(log_folder)
