"""Storage of a table, a local folder or an object store, with the few operations that a log needs.

The two differ in the cost of a request, and in the time for which a deleted name stays unsafe. Both
are data of a store (`Costs`), so the code that reads and writes a log exists once. Here are the
interface and the local folder; `pipeline.delta.object_store` has the other one.

In a local folder a file is created whole: its content is written to a temporary file first, and
then linked to its name. Readers never see a part of it, and the link fails if the name is taken.

A file's content and its name are stored separately: the name is in the folder. After a power loss a
folder that was not flushed may lack the name, or have the name of an empty file.
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

# With these errors a link was not made. After any other, such as EIO, it may have been: a network
# file system sends a link again, and finds its own.
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
# Encoded by Arrow, or bytes.
Buffer = bytes | Any


class Costs(Struct, frozen=True):
    """The differences between stores. Times in seconds."""

    # Whether a look is a request, which takes tens of milliseconds and is billed.
    is_remote: bool
    # If a writer saw the log's end this recently, a clean-up cannot have freed the next version's
    # name, because no clean-up deletes younger files. On a disk it can: a consumed table's log is
    # trimmed after half a minute, so each commit is checked.
    freed_s: float


class Listed(Struct, frozen=True):
    """A file of a list: its path below the store's root, its size in bytes and its time, ms."""

    path: str
    size: int
    modified_ms: int


class Outcome(Enum):
    """The outcome of a creation. TAKEN: another writer's file has the name."""

    MADE = "made"
    TAKEN = "taken"
    UNKNOWN = "unknown"


class Created(NamedTuple):
    """The outcome of a creation, and the store's last error unless it simply succeeded."""

    outcome: Outcome
    why: OSError | None = None


class NotFlushed(OSError):
    """A commit that is in the log but may not survive a power loss.

    The content on the disk is unknown, and a second fsync may report success (fsyncgate). So the
    log accepts no more commits of this writer until the table is opened again.
    """


class CommitStateUnknown(OSError):
    """A commit with an unknown outcome: it may be in the table, so its data files must stay.

    Source of the name: Apache Iceberg's CommitStateUnknownException.
    """


class Store(Protocol):
    """The files below one URI, by paths relative to it."""

    uri: str
    costs: Costs

    def read(self, path: str) -> bytes | None:
        """Return a file's content, None if there is none. Raises OSError."""
        ...

    def create(self, path: str, content: bytes, flushed: bool = False) -> Created:
        """Create a file whole, only if it does not exist; no other file has the same content.

        With `flushed` content and name are on the disk when this returns. Raises OSError if the
        file was certainly not created. Raises NotFlushed if it was created and a power loss may
        undo that.
        """
        ...

    def write(self, path: str, content: Buffer, flushed: bool = False) -> int:
        """Create or replace a file; return its time, ms. Raises OSError, and then leaves no part.

        With `flushed` content and name are on the disk when this returns.
        """
        ...

    def list(self, below: str = "", most: int | None = None) -> list[Listed]:
        """Return the files below a path in the order of names, at most `most`; None: all."""
        ...

    def stamp(self, path: str) -> object | None:
        """Return a stamp that differs for another file of the same name, None without a file."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; missing files are no error."""
        ...


def settle(store: Store, path: str, content: bytes, why: OSError) -> Created:
    """Determine from a file's content the outcome of its creation, which failed with `why`.

    A store may execute a request and report a failure. A disk reports EIO after a link, a network
    file system repeats the link and finds its own, or a response is lost. If the file has only the
    beginning of this content, the outcome is unknown. If it were taken for another writer's file,
    this writer would delete data files that its own commit names.
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
                    raise NotFlushed(
                        f"{target} may not outlive a loss of power: {error}"
                    ) from error
        return created

    def write(self, path: str, content: Buffer, flushed: bool = False) -> int:
        """See `Store`. A missing folder below this one is created, one level deep.

        This folder itself is not created: otherwise a table with a missing folder would seem to
        exist.
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
        """See `Store`. Files in subfolders are not listed."""
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
                # The link alone decides whether the file exists.
                log.warning("%s is left behind: %s", partial, error)
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
    """Force a file's content, or a folder's names, to the disk; return when the disk has them."""
    with opened_to_flush(path) as force:
        force()


@contextmanager
def opened_to_flush(path: Path) -> Iterator[Callable[[], None]]:
    """Open a file or folder, and yield a function that forces it to the disk.

    Open it before it is changed: then the flush cannot fail for too many open files.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield lambda: os.fsync(descriptor)
    finally:
        os.close(descriptor)
