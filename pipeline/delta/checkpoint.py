"""Checkpoints of a table's log, and what may go of the log because of them."""

from __future__ import annotations

import logging
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipeline.delta.log import last_checkpoint
from pipeline.delta.table import open_delta, refresh

log = logging.getLogger(__name__)

# A checkpoint waits for one commit for each so many names of the last one.
NAMED_A_COMMIT = 100


def checkpoint(folder: Path, version: int) -> None:
    """Write a checkpoint and clean the log up, if it is time; it takes 100 ms and more.

    A checkpoint names all files, and those that were removed lately. So that 100,000 names are not
    written anew every few seconds, it waits for one commit for every `NAMED_A_COMMIT` names of the
    checkpoint before: a commit pays for them with 0.2 ms and 6 kB.
    """
    try:
        last = last_checkpoint(folder / "_delta_log")
        if last is not None and version - last.version < last.size // NAMED_A_COMMIT:
            return
        _write(open_delta(str(folder)))
    except (DeltaError, OSError) as error:
        # The next one will do; until then a reader replays more of the log.
        log.warning("no checkpoint of %s: %s", folder, error)


def clean_log(handle: DeltaTable) -> None:
    """Write a checkpoint, and drop the log files that are past the table's log retention."""
    refresh(handle)
    _write(handle)


def _write(handle: DeltaTable) -> None:
    handle.create_checkpoint()
    handle.cleanup_metadata()
