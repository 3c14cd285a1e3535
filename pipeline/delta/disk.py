"""A local folder as a store, and forcing what is in it to the disk.

A file is created whole: its content is written beside it first and then linked to its name. Readers
never see a part of it, and the link fails if the name is taken.

A file's content and its name are two things: the name is in the folder, and a folder that was not
forced may come back without it, or with the name of a file whose content is empty.
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
        """See `Store`. A folder below this one that is missing is made, one level of it.

        This one is not: a table whose folder is away would seem to be there.
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
        """See `Store`. Files in folders of the folder are not among them."""
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
        """See `Store`: its time and its size."""
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
                # The link alone decides whether the file stands.
                log.warning("%s is left behind: %s", partial, error)
        return Created(Outcome.MADE)


def write_partial(folder: Path, content: bytes, flushed: bool = False) -> Path:
    """Write a file beside the folder's own, under a name that no reader of a log looks at."""
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
    """Force a file's content, or a folder's names, to the disk; returns when the disk has them."""
    with opened_to_flush(path) as force:
        force()


@contextmanager
def opened_to_flush(path: Path) -> Iterator[Callable[[], None]]:
    """Open what is to be forced to the disk in the block: yields what forces it.

    What is opened before it is changed cannot fail for one file too many that is open afterwards.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield lambda: os.fsync(descriptor)
    finally:
        os.close(descriptor)
