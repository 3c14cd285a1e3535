"""Delta checkpoints: what a reader opens a table by, and what makes older log files superfluous.

Their content is delta-rs's own. On a disk it writes them. In a store it would ask for each commit
since the last checkpoint about four times: there the log since is put together in a temporary
folder, of commits that this process has written or read anyway and one GET for each other one, and
what delta-rs writes there is uploaded.

A clean-up of a log in a store lists all of it, which is a request for every thousand files: so it
is done once an hour by whoever appends.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from deltalake import DeltaTable

from group_coordinator.pipeline.delta.disk import flush
from group_coordinator.pipeline.delta.failures import STORE_FAILS
from group_coordinator.pipeline.delta.log import checkpoint_name, commit_name, log_uri, open_log
from group_coordinator.pipeline.delta.object_store import ObjectStore
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

# Every so many versions a Delta checkpoint may be due.
CHECKPOINT_EVERY = 100
# A Delta checkpoint waits for one commit per so many actions of the checkpoint before.
ACTIONS_PER_COMMIT = 100
# How often a log in a store is cleaned up by one writer, s.
CLEAN_UP_S = 3600.0


def checkpoint(uri: str, version: int, known: Mapping[int, bytes], cleans_up: bool) -> None:
    """Write a Delta checkpoint if one is due, and clean the log up; takes 100 ms and more.

    A checkpoint names all files, and the files that were removed lately. So that 100,000 names are
    not written anew every few seconds, a checkpoint is due only one commit per `ACTIONS_PER_COMMIT`
    names after the checkpoint before: that costs 0.2 ms and 6 kB a commit.

    `known` are the contents of commits in a store that need not be read again; there the log is
    cleaned up only if `cleans_up`. A failure is logged: the next checkpoint will do, and until then
    a reader replays more of the log.
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
            # It may be another writer's checkpoint that is not a file of its own.
            _write(open_delta(uri))
    except STORE_FAILS as error:
        log.warning("no Delta checkpoint of %s: %s", uri, error)


def clean_log(handle: DeltaTable) -> None:
    """Write a Delta checkpoint, and delete the log files past `delta.logRetentionDuration`."""
    refresh(handle)
    _write(handle)


def _write(handle: DeltaTable) -> None:
    handle.create_checkpoint()
    folder = local_folder(handle.table_uri)
    if folder is not None:
        # The clean-up deletes the commits that the checkpoint stands for.
        for name in (checkpoint_name(handle.version()), NOTE):
            flush(folder / "_delta_log" / name)
        flush(folder / "_delta_log")
    handle.cleanup_metadata()


def _write_in_store(
    uri: str, version: int, last: LastCheckpoint | None, known: Mapping[int, bytes]
) -> None:
    """Write the Delta checkpoint of a version after the last one.

    Two GETs, two PUTs, and a GET for each commit since that is not known. Raises Failure if a part
    of the log is gone, or in more than one file; OSError and DeltaError.
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
        raise Failure(f"{store.uri} does not have {name}")
    return content
