"""The message for a coordinator that failed: one line, which names the root if that is broken.

A full disk or a deleted folder causes an error at the next write: in Spark's state store, in a
streaming checkpoint, or in a table. The user needs the same message in each case.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

from group_coordinator.pipeline.delta import local_folder
from group_coordinator.schemas.tables import REQUESTS

# With less free space than this, bytes, a disk may refuse one file and accept a smaller one.
_FULL_BYTES = 64 * 1024
# A line of a Java stack trace; Py4J puts the whole trace into its message.
_FRAME = re.compile(r"\s+(at \S+\(.*\)|\.\.\. \d+ more)")
# Spark repeats the error of a failed task after this line.
_AGAIN = "Driver stacktrace:"


def one_line(error: BaseException, root: str) -> str:
    """Return the failure's text on one line, after the fault of a local root if it has one.

    Java's stack traces are left out; their causes are kept.
    """
    text = in_one_line(error)
    folder = local_folder(root)
    trouble = None if folder is None else _trouble(folder, text)
    return text if trouble is None else f"{trouble}: {text}"


def in_one_line(error: BaseException) -> str:
    """Return the failure's text on one line, without Java's stack traces and Spark's repetition."""
    text = str(error).partition(_AGAIN)[0]
    lines = [line for line in text.splitlines() if not _FRAME.fullmatch(line)]
    return " ".join(" ".join(lines).split())


def _trouble(root: Path, text: str) -> str | None:
    if os.strerror(errno.ENOSPC) in text:
        return f"the disk of {root} is full"
    # A check of the root itself is not enough: the writer of a checkpoint recreates its parent
    # folders.
    if not (root / REQUESTS.name / "_delta_log").is_dir():
        return f"the tables under {root} are gone"
    if shutil.disk_usage(root).free < _FULL_BYTES:
        return f"the disk of {root} is full"
    return None
