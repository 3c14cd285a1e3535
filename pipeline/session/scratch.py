"""Folders for temporary files, which a later start deletes if their process was killed.

A process deletes its folders when it ends, and one that is killed cannot. So each folder is locked
(`flock`) while its process lives: the kernel frees the lock when the process ends, however it ends.
`sweep` deletes folders that are not locked. A process's id would not do instead of the lock: the
kernel gives ids again, and each container has ids of its own.

Locks of other machines may not be seen on a disk that machines share. So a folder's name says under
which start of which kernel it was made (`boot_id`), and others are let be: after a restart of the
machine, too. Containers of one machine have one kernel, and so each other's locks. Folders of other
users are let be. Where the kernel does not say, or the disk has no locks, nothing is ever swept.
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
    """A new folder that only this user can enter; `path` is where it is. Raises OSError.

    It is deleted with this object, and at the latest when the process ends.
    """

    def __init__(self) -> None:
        made = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
        self.path = _named_once_locked(made, lock)
        self.delete = weakref.finalize(self, _delete, self.path, lock)


def _named_once_locked(made: Path, lock: int) -> Path:
    """Lock a folder and then give it a name that is swept; return what it is called now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Not before: who sweeps takes the name without a lock for one whose process has ended.
        swept = made.with_name(f"{_swept_prefix()}{made.name.removeprefix(_PREFIX)}")
        return made.rename(swept)
    except OSError:
        return made


def _delete(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def sweep() -> None:
    """Delete this user's folders whose process has ended on this machine without doing so."""
    try:
        found = list(Path(tempfile.gettempdir()).glob(f"{_swept_prefix()}*"))
    except OSError:
        return
    for folder in found:
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            # Another user's, or deleted meanwhile.
            continue
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            # Its process lives.
            continue
        finally:
            os.close(lock)


def _swept_prefix() -> str:
    """How the names of folders begin that are swept. Raises OSError where there are none."""
    return f"{_PREFIX}{_BOOT_ID.read_text()[:_BOOT_ID_LENGTH]}-"
