"""The location of a table, its log's file names, and opening it while others write to it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import unquote, urlparse

import msgspec

from group_coordinator.pipeline.clock import back_off
from group_coordinator.pipeline.delta.storage import Disk
from group_coordinator.schemas.decoding import DECODE_ERRORS

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from group_coordinator.pipeline.delta.storage import Store


# The reason in messages for a file that is not read.
OUTSIDE = "it lies outside of its table's folder"
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
T = TypeVar("T")

# The file in which a log notes its newest Delta checkpoint.
NOTE = "_last_checkpoint"
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*")
# A commit, or a part of a Delta checkpoint, of the version at the start of its name.
_OF_VERSION = re.compile(r"\d{20}\.(json|checkpoint\..*)")

# The maximum number of attempts if other writers interfere.
ATTEMPTS = 50
# Beginnings of delta-rs's errors if it listed a log during another process's commit.
_HALF_LISTED = ("CRC file version", "Expected contiguous commit files")


class LastCheckpoint(msgspec.Struct):
    """The newest Delta checkpoint: its version and number of actions (0: unknown)."""

    version: Annotated[int, msgspec.Meta(ge=0)]
    size: int


def local_folder(uri: str) -> Path | None:
    """Return the local folder that a URI or path names, None for an object store's URI."""
    url = urlparse(uri)
    if url.scheme == "file":
        return Path(unquote(url.path))
    return None if url.scheme else Path(uri)


def absolute_uri(uri: str) -> str:
    """Return the absolute path of a local folder, and an object store's URI as it is."""
    folder = local_folder(uri)
    return uri if folder is None else str(folder.absolute())


def is_outside(path: str) -> bool:
    """Return whether a decoded path of a log may name a file outside the table's folder.

    That is an absolute path, a URI, or any path with a part `..`; no engine writes one. Symbolic
    links are followed, as in Spark and delta-rs, because creating one requires an account on the
    machine.
    """
    return (
        path.startswith("/")
        or _URI.match(path) is not None
        or ".." in path.split("/")
        or "\0" in path
    )


def open_store(uri: str) -> Store:
    """Return the store with this folder or URI as its root."""
    folder = local_folder(uri)
    if folder is not None:
        return Disk(folder)
    # Importing the store's client takes 30 ms of CPU.
    from group_coordinator.pipeline.delta.object_store import ObjectStore

    return ObjectStore(uri)


def open_delta(uri: str) -> DeltaTable:
    """Open a table through delta-rs. Raises deltalake's TableNotFoundError."""
    from deltalake import DeltaTable

    handle = _beside_writers(lambda: DeltaTable(uri))
    _step_back(handle)
    return handle


def newest_version(uri: str) -> int:
    """Return a table's newest version. Raises deltalake's TableNotFoundError.

    A local log is only listed: delta-rs would also read it, which takes 1 to 25 ms.
    """
    folder = local_folder(uri)
    if folder is not None:
        newest = listed_version(folder)
        if newest is not None:
            return _filled(folder, newest)
    return open_delta(uri).version()


def listed_version(folder: Path) -> int | None:
    """Return the newest version in the listing of a table's log, None without a log."""
    newest = max(log_names(folder), default=None)
    return None if newest is None else int(newest[:20])


def log_names(folder: Path) -> list[str]:
    """Return the names of the log's commits and checkpoints, unsorted; [] without a log.

    A log that is missing for a moment is listed again.
    """
    log = folder / "_delta_log"
    for attempt in range(ATTEMPTS):
        try:
            with os.scandir(log) as entries:
                return [entry.name for entry in entries if _OF_VERSION.fullmatch(entry.name)]
        except (FileNotFoundError, NotADirectoryError):
            if not log.is_dir():
                return []
            back_off(attempt)
    raise FileNotFoundError(f"{log} exists, but cannot be listed")


def newest_checkpoint(note: bytes, names: Callable[[], Iterable[str]]) -> LastCheckpoint | None:
    """Return the newest Delta checkpoint, by the content of `_last_checkpoint`.

    If that cannot be decoded, for example while Spark writes it in place, the checkpoint is found
    by the `names` of the log's files.
    """
    return decode_last_checkpoint(note) or listed_checkpoint(names())


def listed_checkpoint(names: Iterable[str]) -> LastCheckpoint | None:
    """Return the newest Delta checkpoint among the names of a log's files, with size 0."""
    found = filter(None, map(_CHECKPOINT.fullmatch, names))
    newest = max((int(each[1]) for each in found), default=None)
    return None if newest is None else LastCheckpoint(newest, 0)


def decode_last_checkpoint(content: bytes) -> LastCheckpoint | None:
    """Return the checkpoint that `_last_checkpoint` names, None if the content is invalid."""
    try:
        return msgspec.json.decode(content, type=LastCheckpoint)
    except DECODE_ERRORS:
        return None


def refresh(handle: DeltaTable) -> None:
    """Update an open table to its newest version."""
    _beside_writers(handle.update_incremental)
    _step_back(handle)


def _step_back(handle: DeltaTable) -> None:
    """Load the newest version with a commit that is not empty.

    Another engine is still writing an empty commit in place. delta-rs would take it for a commit
    without changes, and never read it again.
    """
    folder, version = local_folder(handle.table_uri), handle.version()
    if folder is not None and (filled := _filled(folder, version)) < version:
        handle.load_as_version(filled)


def _filled(folder: Path, version: int) -> int:
    while version and _is_empty(folder, version):
        version -= 1
    return version


def _is_empty(folder: Path, version: int) -> bool:
    try:
        size = os.stat(folder / "_delta_log" / f"{version:020}.json").st_size
    except FileNotFoundError:
        # It was cleaned up: a Delta checkpoint holds it.
        return False
    checkpoint = f"{version:020}.checkpoint."
    return not size and not any(name.startswith(checkpoint) for name in log_names(folder))


def _beside_writers(read: Callable[[], T]) -> T:
    """Read a log while others write to it; retry if delta-rs got an inconsistent listing.

    A listing during commits may have the second of two commits alone, or a checksum without its
    commit. delta-rs fails on it; the next listing has both.
    """
    from deltalake.exceptions import DeltaError

    for attempt in range(ATTEMPTS):
        try:
            return read()
        except DeltaError as error:
            if attempt == ATTEMPTS - 1 or not any(sign in str(error) for sign in _HALF_LISTED):
                raise
            back_off(attempt)
    raise AssertionError("the last attempt returns or raises")
