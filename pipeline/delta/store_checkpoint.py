"""Writing a Delta checkpoint in an object store with as few requests as there can be.

delta-rs asks for each commit since the last Delta checkpoint about four times to write the next
one. Here the log since the last one is put together in a temporary folder, of commits that this
process has written or read anyway and one GET for each other one; delta-rs writes the checkpoint
there, and it is uploaded. So the content of a checkpoint is delta-rs's own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from group_coordinator.pipeline.delta.log import NOTE, decode_last_checkpoint
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta.object_store import Folder


def write_checkpoint(
    log: Folder, version: int, note: bytes | None, known: Mapping[int, bytes]
) -> None:
    """Write the Delta checkpoint of a version; `log` is the table's `_delta_log`.

    `note` is what the log says of its last Delta checkpoint, `known` the contents of commits by
    their versions. Two GETs, two PUTs, and a GET for each commit since that is not known. Raises
    Failure if a part of the log is gone, or in more than one file; OSError and DeltaError.
    """
    last = None if note is None else decode_last_checkpoint(note)
    with tempfile.TemporaryDirectory(prefix="group-coordinator-checkpoint-") as scratch:
        folder = Path(scratch, "_delta_log")
        folder.mkdir()
        first = 0
        if last is not None and note is not None:
            name = _name(last.version)
            (folder / name).write_bytes(_content(log, name))
            (folder / NOTE).write_bytes(note)
            first = last.version + 1
        for number in range(first, version + 1):
            name = f"{number:020}.json"
            (folder / name).write_bytes(known.get(number) or _content(log, name))
        DeltaTable(scratch).create_checkpoint()
        log.upload(folder / _name(version), _name(version))
        newest = log.read(NOTE)
        noted = None if newest is None else decode_last_checkpoint(newest)
        if noted is None or noted.version < version:
            log.write(NOTE, (folder / NOTE).read_bytes())


def _content(log: Folder, name: str) -> bytes:
    content = log.read(name)
    if not content:
        raise Failure(f"{log.uri} does not have {name}")
    return content


def _name(version: int) -> str:
    return f"{version:020}.checkpoint.parquet"
