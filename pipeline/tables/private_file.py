"""Writing a file of secrets: its owner's alone, whole at any time, and changed by one at a time."""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Keep others from changing a file during the block: who reads, changes and writes it.

    The lock is on a file beside it, which stays: the file itself is replaced when it is written.
    The system gives a lock back when the process ends. Raises OSError.
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
    """Replace a file at once: who reads it sees all of the old one or all of the new one."""
    # mkstemp makes a file that its owner alone can read.
    handle, name = tempfile.mkstemp(dir=path.resolve().parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(line + b"\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path.resolve())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
