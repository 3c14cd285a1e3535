"""What to tell of a coordinator that failed: one line, which names its root if that is broken.

A full disk or a folder that was taken away shows up wherever the next file is to be written: in
Spark's state store, in a streaming checkpoint, in a table. What a person must know is the same each
time.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

from group_coordinator.pipeline.delta.table import local_folder
from group_coordinator.schemas.tables import REQUESTS

# A disk with less than this may refuse a file and still have room for a smaller one.
_FULL_BYTES = 64 * 1024
# A line of a stack trace of Java's, of which Py4J makes its message.
_FRAME = re.compile(r"\s+(at \S+\(.*\)|\.\.\. \d+ more)")
# Of a task that failed, Spark says all of it twice: this stands between the two.
_AGAIN = "Driver stacktrace:"


def one_line(error: BaseException, root: str) -> str:
    """The failure's text on one line, after what is wrong with a root on a local disk, if it is.

    Java's stack traces are left out, their causes are not.
    """
    text = in_one_line(error)
    folder = local_folder(root)
    trouble = None if folder is None else _trouble(folder, text)
    return text if trouble is None else f"{trouble}: {text}"


def in_one_line(error: BaseException) -> str:
    """The failure's text on one line, without Java's stack traces and what Spark repeats."""
    text = str(error).partition(_AGAIN)[0]
    lines = [line for line in text.splitlines() if not _FRAME.fullmatch(line)]
    return " ".join(" ".join(lines).split())


def _trouble(root: Path, text: str) -> str | None:
    if os.strerror(errno.ENOSPC) in text:
        return f"the disk of {root} is full"
    # Not the root itself: whoever writes a checkpoint makes the folders above it anew.
    if not (root / REQUESTS.name / "_delta_log").is_dir():
        return f"the tables under {root} are gone"
    if shutil.disk_usage(root).free < _FULL_BYTES:
        return f"the disk of {root} is full"
    return None
