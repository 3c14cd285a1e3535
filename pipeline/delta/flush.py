"""Forcing files and the names of files to the disk, so that they outlive a loss of power.

A file's content and its name are two things: the name is in the folder, and a folder that was not
forced may come back without it, or with the name of a file whose content is empty.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


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
