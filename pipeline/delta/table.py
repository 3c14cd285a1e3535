"""A table's location, the files in its log's folder, and opening it while others write to it."""

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


# The reason for which a file is not read.
OUTSIDE = "it lies outside of its table's folder"
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
T = TypeVar("T")

# Where a log notes its newest Delta checkpoint.
NOTE = "_last_checkpoint"
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*")
# A commit, or any part of a Delta checkpoint, of the version that its name begins with.
_OF_VERSION = re.compile(r"\d{20}\.(json|checkpoint\..*)")

# The most attempts of an operation that loses against other writers.
ATTEMPTS = 50
# The beginnings of delta-rs's messages if it listed a log while a commit was being written.
_HALF_LISTED = ("CRC file version", "Expected contiguous commit files")


class LastCheckpoint(msgspec.Struct):
    """The newest Delta checkpoint: its version and its number of actions."""

    version: Annotated[int, msgspec.Meta(ge=0)]
    size: int


def local_folder(uri: str) -> Path | None:
    """Return the local folder that a URI or a path names, None for a URI of another store."""
    url = urlparse(uri)
    if url.scheme == "file":
        return Path(unquote(url.path))
    return None if url.scheme else Path(uri)


def is_outside(path: str) -> bool:
    """Return whether a percent-decoded path of a log may name a file outside the table's folder.

    That is an absolute path, a URI, or any path with a part `..`, wherever it leads; no engine
    writes one. Symbolic links are followed, as in Spark and delta-rs, because creating one requires
    an account on the machine.
    """
    return (
        path.startswith("/")
        or _URI.match(path) is not None
        or ".." in path.split("/")
        or "\0" in path
    )


def open_store(uri: str) -> Store:
    """Return the store of a URI's folder."""
    folder = local_folder(uri)
    if folder is not None:
        return Disk(folder)
    # Importing a store's client takes 30 ms of CPU, which a table in a local folder does not need.
    from group_coordinator.pipeline.delta.object_store import ObjectStore

    return ObjectStore(uri)


def open_delta(uri: str) -> DeltaTable:
    """Open a table through delta-rs; raises deltalake's TableNotFoundError."""
    from deltalake import DeltaTable

    handle = _beside_writers(lambda: DeltaTable(uri))
    _step_back(handle)
    return handle


def newest_version(uri: str) -> int:
    """Return a table's newest version; raises deltalake's TableNotFoundError.

    A local log is listed, and not read as by delta-rs, which takes 1 to 25 ms. A log that was
    cleaned up may have a version's Delta checkpoint and no longer its commit.
    """
    folder = local_folder(uri)
    if folder is not None:
        newest = listed_version(folder)
        if newest is not None:
            return _filled(folder, newest)
    return open_delta(uri).version()


def listed_version(folder: Path) -> int | None:
    """Return the newest version that the listing of a table's log has, None without one."""
    newest = max(log_names(folder), default=None)
    return None if newest is None else int(newest[:20])


def log_names(folder: Path) -> list[str]:
    """Return the names of the log's files that make a version, in any order; [] without a log.

    A log that was missing for a moment, or that is created meanwhile, is listed again.
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
    raise FileNotFoundError(f"{log} is there and cannot be listed")


def newest_checkpoint(note: bytes, names: Callable[[], Iterable[str]]) -> LastCheckpoint | None:
    """Return the newest Delta checkpoint by the content of a log's note of it.

    If the note cannot be read, for example while Spark writes it in place, the `names` of the log's
    files are used.
    """
    return decode_last_checkpoint(note) or listed_checkpoint(names())


def listed_checkpoint(names: Iterable[str]) -> LastCheckpoint | None:
    """Return the newest Delta checkpoint among the names of a log's files, of no known size."""
    found = filter(None, map(_CHECKPOINT.fullmatch, names))
    newest = max((int(each[1]) for each in found), default=None)
    return None if newest is None else LastCheckpoint(newest, 0)


def decode_last_checkpoint(content: bytes) -> LastCheckpoint | None:
    """Return the note of a Delta checkpoint from its file's content, None if it is not readable."""
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

    No commit is empty: a writer that creates the file in place has not filled it yet. delta-rs
    takes it for a commit without changes, and never reads it again.
    """
    folder, version = local_folder(handle.table_uri), handle.version()
    if folder is not None and (filled := _filled(folder, version)) < version:
        handle.load_as_version(filled)


def _filled(folder: Path, version: int) -> int:
    """Return the newest version up to this one with a commit that is not empty."""
    while version and _is_empty(folder, version):
        version -= 1
    return version


def _is_empty(folder: Path, version: int) -> bool:
    try:
        size = os.stat(folder / "_delta_log" / f"{version:020}.json").st_size
    except FileNotFoundError:
        # It was cleaned up, because a Delta checkpoint holds it.
        return False
    checkpoint = f"{version:020}.checkpoint."
    return not size and not any(name.startswith(checkpoint) for name in log_names(folder))


def _beside_writers(read: Callable[[], T]) -> T:
    """Read a log while others write to it; read again if its list was inconsistent.

    delta-rs lists a log and then reads it. Of two commits that are created during the listing, the
    list may have the second alone; of a commit and its checksum, the checksum alone. delta-rs fails
    on such a list, and the next listing has both.
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
