"""Files of secrets, readable by their owner only, with atomic replacement and a lock."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

log = logging.getLogger(__name__)

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH


def read_private(path: Path) -> bytes:
    """Return the content of a file of secrets.

    Logs a warning if other users of the machine can read it. Raises PermissionError if they can
    write to it, because they could add a secret; OSError if it cannot be read.
    """
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & _WRITABLE_BY_OTHERS:
            reason = f"other users can write to it (mode {mode:04o}): run chmod 600"
            raise PermissionError(errno.EPERM, reason, str(path))
        if mode & _READABLE_BY_OTHERS:
            log.warning("other users can read %s (mode %04o): run chmod 600", path, mode)
        return file.read()


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Lock a file for a block that reads and replaces it.

    The lock is on a separate file in the same folder, because the file itself is replaced. The lock
    file stays; the operating system releases the lock when the process ends. Raises OSError.
    """
    path = path.resolve()
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    handle = os.open(path.with_name(f".{path.name}.lock"), flags, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_private(path: Path, lines: Iterable[bytes]) -> None:
    """Replace a file atomically: readers see the complete old or the complete new file."""
    path = path.resolve()
    with _written(path, (line + b"\n" for line in lines)) as name:
        os.replace(name, path)


def create_private(path: Path, content: bytes) -> None:
    """Create a file atomically, unless it exists."""
    with _written(path, [content]) as name, suppress(FileExistsError):
        os.link(name, path)


@contextmanager
def _written(path: Path, parts: Iterable[bytes]) -> Iterator[str]:
    """Write and sync a temporary file in the folder of `path`; yield, then delete its name."""
    # mkstemp creates a file that only its owner can read.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        yield name
    finally:
        Path(name).unlink(missing_ok=True)
