"""A separate disk for a root, small enough to be filled: a tmpfs, which only root may mount."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_SIZE = "2g"
_FILLER = ".filler"


class Disk:
    """A folder on a disk that `fill` makes full, until `free`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        """Fill the space that is free now; less, if other processes use some of it meanwhile."""
        with (self.folder / _FILLER).open("ab", 0) as file, contextlib.suppress(OSError):
            if free := _free(self.folder):
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, free)

    def free(self) -> None:
        """Free the space again."""
        (self.folder / _FILLER).unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder: Path, size: str = _SIZE) -> Iterator[Disk | None]:
    """Mount a tmpfs at an empty folder for the block; None where that is not allowed.

    `size` is as mount takes it.
    """
    if os.geteuid() or not _did("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder):
        yield None
        return
    try:
        yield Disk(folder)
    finally:
        _did("umount", "-l", folder)


def _free(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _did(*command: str | Path) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
