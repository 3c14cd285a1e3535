"""A disk of its own for a root, small enough to be filled: a tmpfs, which root may mount."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_SIZE = "2g"
_FILLER = ".filler"
_CHUNK = bytes(1 << 20)
_END = bytes(512)


class Disk:
    """A folder on a disk that `fill` leaves no room on, until `free`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_full = False

    def fill(self) -> None:
        """Take all the room that is left."""
        self.is_full = True
        with contextlib.suppress(OSError), (self.folder / _FILLER).open("wb", 0) as file:
            for piece in (_CHUNK, _END):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(piece)

    def free(self) -> None:
        """Give the room back."""
        (self.folder / _FILLER).unlink(missing_ok=True)
        self.is_full = False


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Disk | None]:
    """Mount a tmpfs of 2 GB at an empty folder for the block; None where that is not allowed."""
    if os.geteuid() or not _did("mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", folder):
        yield None
        return
    try:
        yield Disk(folder)
    finally:
        _did("umount", "-l", folder)


def _did(*command: str | Path) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
