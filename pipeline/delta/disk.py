"""A local folder as a store, and flushing its files and names to the disk.

A file is created whole: its content is written to a temporary file first, and then linked to its
name. Readers never see a part of it, and the link fails if the name is taken.

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
from pathlib import Path
from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta.store import (
    Costs,
    Created,
    Listed,
    NotFlushed,
    Outcome,
    settle,
)

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta.store import Buffer

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
