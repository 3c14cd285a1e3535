"""Delta checkpoints, and the clean-up of the log files that they replace.

delta-rs produces the content, and on a disk also the file. In a store it would request each commit
since the last checkpoint about four times. So for a store the log since then is assembled in a
temporary folder, from commits in memory, and one GET for each commit that is not in memory;
delta-rs writes the checkpoint there, and this module uploads it. Cleaning up a log in a store lists
it, so each writer does it once an hour.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from deltalake import DeltaTable

from group_coordinator.pipeline.delta.failures import STORE_FAILS
from group_coordinator.pipeline.delta.log import checkpoint_name, commit_name, log_uri, open_log
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.storage import flush
from group_coordinator.pipeline.delta.table import (
    NOTE,
    decode_last_checkpoint,
    local_folder,
    open_delta,
    refresh,
)
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from group_coordinator.pipeline.delta.table import LastCheckpoint

log = logging.getLogger(__name__)

# A Delta checkpoint may be due at each multiple of this version.
CHECKPOINT_EVERY = 100
# A checkpoint is due after one commit for this many actions of the last checkpoint.
ACTIONS_PER_COMMIT = 100
# The interval at which each writer cleans up a log in a store, s.
CLEAN_UP_S = 3600.0


def checkpoint(uri: str, version: int, known: Mapping[int, bytes], cleans_up: bool) -> None:
    """Write a Delta checkpoint if one is due, and clean up the log; takes 100 ms or more.

    A checkpoint names all files, and recently removed ones. It is due once the commits since the
    last checkpoint are as many as the actions of that checkpoint divided by `ACTIONS_PER_COMMIT`.
    So checkpoints cost 0.2 ms and 6 kB per commit in a table of any size.

    `known` has contents of commits in a store that need not be read again. A log in a store is
    cleaned up only if `cleans_up`. A failure is only logged: until the next checkpoint, readers
    replay more commits.
    """
    folder = local_folder(uri)
    try:
        last = open_log(uri).last_checkpoint()
        is_due = last is None or version - last.version >= last.size // ACTIONS_PER_COMMIT
        if folder is not None:
            if is_due:
                _write(open_delta(uri))
            return
        if is_due and (last is None or last.version < version):
            _write_in_store(uri, version, last, known)
        if cleans_up:
            # The last checkpoint may be another writer's in several files, which this module does
            # not write.
            _write(open_delta(uri))
    except STORE_FAILS as error:
        log.warning("could not write a Delta checkpoint of %s: %s", uri, error)


def clean_log(handle: DeltaTable) -> None:
    """Write a Delta checkpoint, and delete log files older than `delta.logRetentionDuration`."""
    refresh(handle)
    _write(handle)


def _write(handle: DeltaTable) -> None:
    handle.create_checkpoint()
    folder = local_folder(handle.table_uri)
    if folder is not None:
        # The clean-up deletes the commits that the checkpoint replaces, so it must be on the disk.
        for name in (checkpoint_name(handle.version()), NOTE):
            flush(folder / "_delta_log" / name)
        flush(folder / "_delta_log")
    handle.cleanup_metadata()


def _write_in_store(
    uri: str, version: int, last: LastCheckpoint | None, known: Mapping[int, bytes]
) -> None:
    """Write the Delta checkpoint of a version after `last`.

    Two GETs, two PUTs, and one GET for each commit that is not in `known`. Raises Failure if a part
    of the log is gone, or if the last checkpoint is not one file. Raises OSError and DeltaError.
    """
    store = ObjectStore(log_uri(uri))
    with tempfile.TemporaryDirectory(prefix="group-coordinator-checkpoint-") as scratch:
        folder = Path(scratch, "_delta_log")
        folder.mkdir()
        first = 0
        if last is not None:
            name = checkpoint_name(last.version)
            (folder / name).write_bytes(_content(store, name))
            (folder / NOTE).write_bytes(msgspec.json.encode(last))
            first = last.version + 1
        for number in range(first, version + 1):
            name = commit_name(number)
            (folder / name).write_bytes(known.get(number) or _content(store, name))
        DeltaTable(scratch).create_checkpoint()
        name = checkpoint_name(version)
        store.upload(folder / name, name)
        newest = store.read(NOTE)
        noted = None if newest is None else decode_last_checkpoint(newest)
        if noted is None or noted.version < version:
            store.write(NOTE, (folder / NOTE).read_bytes())


def _content(store: ObjectStore, name: str) -> bytes:
    content = store.read(name)
    if not content:
        raise Failure(f"{store.uri}/{name} does not exist or is empty")
    return content
