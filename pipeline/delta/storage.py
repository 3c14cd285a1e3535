"""The storage of a table: the interface `Store`, and its implementation for a local folder.

`pipeline.delta.object_store` implements it for object stores. `Costs` describes the differences, so
the code that reads and writes logs exists once.

In a local folder a file is written under a temporary name and then linked to its own name. Readers
never see a part of it, and the link fails if the name is taken. A file's name is stored in its
folder: if only one of the two was flushed, a power loss may leave no name, or an empty file.
"""

from __future__ import annotations

import errno
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence


log = logging.getLogger(__name__)

# With these errors the link certainly does not exist. After any other, such as EIO, it may: a
# network file system repeats the request and finds its own link.
_NOT_LINKED = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EMLINK,
    errno.ENOENT,
    errno.ENOSPC,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EROFS,
}
# A pyarrow buffer, or bytes.
Buffer = bytes | Any


class Costs(Struct, frozen=True):
    """The differences between kinds of stores."""

    # Whether each read is a network request, which takes tens of milliseconds and is billed.
    is_remote: bool
    # The time (s) for which a writer may rely on the log's end that it saw: no clean-up deletes
    # commits younger than this, so the next version's name was not freed meanwhile. 0 on a disk,
    # where logs are trimmed after half a minute: each commit is checked.
    freed_s: float


class Listed(Struct, frozen=True):
    """An entry of a listing: path below the store's root, size (bytes), modification time (ms)."""

    path: str
    size: int
    modified_ms: int


class Outcome(Enum):
    """The outcome of creating a file; TAKEN means that another writer created it."""

    MADE = "made"
    TAKEN = "taken"
    UNKNOWN = "unknown"


class Created(NamedTuple):
    """The outcome of creating a file; `why` is the store's last error, None if there was none."""

    outcome: Outcome
    why: OSError | None = None


class NotFlushed(OSError):
    """A commit that is in the log but may not survive a power loss, because an fsync failed.

    After a failed fsync a second one may report success although the data is lost (fsyncgate). So
    this writer makes no more commits until the table is opened again.
    """


class CommitStateUnknown(OSError):
    """A commit with an unknown outcome: it may be in the table, so its data files must stay.

    Named after Apache Iceberg's CommitStateUnknownException.
    """


class Store(Protocol):
    """The files below one URI; all paths are relative to it."""

    uri: str
    costs: Costs

    def read(self, path: str) -> bytes | None:
        """Return a file's content, None if it does not exist. Raises OSError."""
        ...

    def create(self, path: str, content: bytes, flushed: bool = False) -> Created:
        """Create a file unless it exists. Readers never see a part of it.

        `content` must differ from that of every other file. With `flushed` the content and the name
        are on the disk when this returns. Raises OSError if the file was certainly not created.
        Raises NotFlushed if it was created but a power loss may undo that.
        """
        ...

    def write(self, path: str, content: Buffer, flushed: bool = False) -> int:
        """Create or replace a file; return its modification time, ms.

        With `flushed` the content and the name are on the disk when this returns. Raises OSError;
        then no part of the file remains.
        """
        ...

    def list(self, below: str = "", most: int | None = None) -> list[Listed]:
        """Return the files below a path, sorted by name: all, or the first `most`."""
        ...

    def stamp(self, path: str) -> object | None:
        """Return a value that differs for another file of the same name; None without a file."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; missing files are no error."""
        ...


def settle(store: Store, path: str, content: bytes, why: OSError) -> Created:
    """Return the outcome of creating a file, after an error `why`, by reading the file.

    A store may execute a request and report a failure: EIO after a link, a link that NFS repeats, a
    lost response. If the file holds only the beginning of `content`, the outcome is unknown: if the
    file counted as another writer's, this writer would delete data files that its own commit names.
    """
    try:
        found = store.read(path)
    except OSError as unreadable:
        return Created(Outcome.UNKNOWN, unreadable)
    if found == content:
        return Created(Outcome.MADE, why)
    if found is None or content.startswith(found):
        return Created(Outcome.UNKNOWN, why)
    return Created(Outcome.TAKEN, why)


# --- a local folder ------------------------------------------------------------------------------


class Disk:
    """The files below one local folder; see `Store`."""

    costs = Costs(is_remote=False, freed_s=0.0)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uri = str(folder)

    def read(self, path: str) -> bytes | None:
        """See `Store`."""
        try:
            return (self.folder / path).read_bytes()
        except FileNotFoundError:
            return None

    def create(self, path: str, content: bytes, flushed: bool = False) -> Created:
        """See `Store`."""
        if not flushed:
            return self._link(path, content, flushed=False)
        target = self.folder / path
        with opened_to_flush(target.parent) as force:
            created = self._link(path, content, flushed=True)
            if created.outcome is Outcome.MADE:
                try:
                    force()
                except OSError as error:
                    raise NotFlushed(f"{target} may not survive a power loss: {error}") from error
        return created

    def write(self, path: str, content: Buffer, flushed: bool = False) -> int:
        """See `Store`. A missing parent folder is created, one level deep, but not the root.

        If the root were created, a table with a missing folder would seem to exist.
        """
        target = self.folder / path
        if target.parent != self.folder and not target.parent.exists():
            target.parent.mkdir(exist_ok=True)
            if flushed:
                flush(self.folder)
        try:
            target.write_bytes(content)
            if flushed:
                flush(target)
                flush(target.parent)
        except OSError:
            target.unlink(missing_ok=True)
            raise
        return target.stat().st_mtime_ns // 1_000_000

    def list(self, below: str = "", most: int | None = None) -> list[Listed]:
        """See `Store`. Subfolders are not searched."""
        found: list[Listed] = []
        try:
            scanned = os.scandir(self.folder / below)
        except FileNotFoundError:
            return []
        with scanned as entries:
            for entry in entries:
                if entry.is_file():
                    status = entry.stat()
                    path = f"{below}{entry.name}"
                    found.append(Listed(path, status.st_size, status.st_mtime_ns // 1_000_000))
        return sorted(found, key=lambda each: each.path)[:most]

    def stamp(self, path: str) -> object | None:
        """See `Store`: the file's modification time and size."""
        try:
            status = os.stat(self.folder / path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_mtime_ns, status.st_size

    def delete(self, paths: Sequence[str]) -> None:
        """See `Store`."""
        for path in paths:
            (self.folder / path).unlink(missing_ok=True)

    def _link(self, path: str, content: bytes, flushed: bool) -> Created:
        target = self.folder / path
        partial = write_partial(target.parent, content, flushed)
        try:
            os.link(partial, target)
        except OSError as error:
            created = settle(self, path, content, error)
            if created == (Outcome.UNKNOWN, error) and error.errno in _NOT_LINKED:
                raise
            return created
        finally:
            try:
                partial.unlink()
            except OSError as error:
                # The file exists since the link; only its temporary name remains.
                log.warning("could not delete the temporary file %s: %s", partial, error)
        return Created(Outcome.MADE)


def write_partial(folder: Path, content: bytes, flushed: bool = False) -> Path:
    """Write a temporary file into the folder, under a name that readers of a log ignore."""
    partial = folder / f".{uuid.uuid4().hex}.tmp"
    try:
        partial.write_bytes(content)
        if flushed:
            flush(partial)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return partial


def flush(path: Path) -> None:
    """Force a file's content, or a folder's names, to the disk."""
    with opened_to_flush(path) as force:
        force()


@contextmanager
def opened_to_flush(path: Path) -> Iterator[Callable[[], None]]:
    """Open a file or folder, and yield a function that forces it to the disk.

    Open it before the change: then a lack of file descriptors cannot prevent the flush afterwards.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield lambda: os.fsync(descriptor)
    finally:
        os.close(descriptor)
