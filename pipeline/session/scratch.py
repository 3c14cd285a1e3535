"""Temporary folders, which a later start deletes if their process was killed.

Each folder is locked (`flock`) while its process lives, and `sweep` deletes folders that are not
locked. A process id cannot replace the lock: the kernel reuses ids, and each container has its own.

On a shared disk, locks of other machines may be invisible. So the folder's name contains the
`boot_id` of the kernel, and `sweep` deletes only folders with the current one. Folders of other
users, and from before a restart of the machine, stay. Without a `boot_id`, or on a disk without
locks, `sweep` deletes nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path

_PREFIX = "group-coordinator-"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_BOOT_ID_LENGTH = 8


class ScratchFolder:
    """A new folder at `path` that only this user can enter. Raises OSError.

    The folder is deleted with this object, or at the end of the process.
    """

    def __init__(self) -> None:
        made = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
        self.path = _named_once_locked(made, lock)
        self.delete = weakref.finalize(self, _delete, self.path, lock)


def _named_once_locked(made: Path, lock: int) -> Path:
    """Lock a folder, then rename it to a name that `sweep` finds; return its path."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Lock first: `sweep` deletes an unlocked folder with such a name.
        swept = made.with_name(f"{_swept_prefix()}{made.name.removeprefix(_PREFIX)}")
        return made.rename(swept)
    except OSError:
        return made


def _delete(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def sweep() -> None:
    """Delete this user's folders of killed processes on this machine."""
    try:
        found = list(Path(tempfile.gettempdir()).glob(f"{_swept_prefix()}*"))
    except OSError:
        return
    for folder in found:
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            # The folder is another user's, or was deleted meanwhile.
            continue
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            # The process of the folder lives.
            continue
        finally:
            os.close(lock)


def _swept_prefix() -> str:
    """Return the name prefix for folders that `sweep` deletes. Raises OSError without a boot id."""
    return f"{_PREFIX}{_BOOT_ID.read_text()[:_BOOT_ID_LENGTH]}-"
