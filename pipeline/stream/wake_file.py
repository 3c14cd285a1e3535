"""The wake file: shared memory with which the driver makes the source begin a batch.

Both processes are on one machine and map the file, so the source can read it hundreds of times a
second. Each of its three numbers has one writer, and is written atomically.

The file is in a temporary folder, and is deleted once the source has mapped it. If a coordinator is
killed before that, a later one deletes the folder.
"""

from __future__ import annotations

import logging
import mmap
from pathlib import Path

from group_coordinator.pipeline.session.scratch import ScratchFolder

log = logging.getLogger(__name__)

_DUE, _WAKES, _IS_OPEN = range(3)
_SIZE = 3 * 8


class WakeFile:
    """The shared numbers. The driver creates the file at `path`, and the source opens it."""

    def __init__(self, path: Path, folder: ScratchFolder | None = None) -> None:
        self.path = path
        self._folder = folder
        with path.open("r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), _SIZE)).cast("q")

    @classmethod
    def create(cls) -> WakeFile:
        """Create the file of one query. Raises OSError."""
        folder = ScratchFolder()
        path = folder.path / "wake"
        path.write_bytes(bytes(_SIZE))
        return cls(path, folder)

    @classmethod
    def open(cls, path: str) -> WakeFile | None:
        """Open the driver's file; on failure, log a warning and return None."""
        try:
            found = cls(Path(path))
        # ValueError: the file is too short.
        except (OSError, ValueError) as error:
            log.warning(
                "timers are checked every trigger.interval.ms, because %s cannot be opened: %s",
                path,
                error,
            )
            return None
        found._numbers[_IS_OPEN] = 1
        return found

    @property
    def due_ms(self) -> int:
        """The earliest time at which a timer may be due, ms by the wall clock; 0 at first."""
        return self._numbers[_DUE]

    @due_ms.setter
    def due_ms(self, value: int) -> None:
        self._numbers[_DUE] = value

    @property
    def wakes(self) -> int:
        """The number of times that the driver has woken the source."""
        return self._numbers[_WAKES]

    def wake(self) -> None:
        """Make the source begin a batch at once, unless a batch begins anyway."""
        self._numbers[_WAKES] += 1

    @property
    def is_open(self) -> bool:
        """Whether the source has opened the file."""
        return bool(self._numbers[_IS_OPEN])

    def delete(self) -> None:
        """Delete the file if this object created it. Processes that have mapped it keep it."""
        if self._folder is not None:
            self._folder.delete()
