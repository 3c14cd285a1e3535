"""What the driver tells the source, whose process Spark starts: three numbers in a file in memory.

Both processes are on one machine and map the file, so a look at it is a look at memory: the source
looks hundreds of times a second. Each number has one writer, and is written at once.

The file lies in the folder for temporary files and is deleted as soon as the source has mapped it.
Of a coordinator that is killed in the second between, 24 bytes stay.
"""

from __future__ import annotations

import logging
import mmap
import os
import tempfile
from pathlib import Path

log = logging.getLogger(__name__)

_DUE, _WAKES, _IS_OPEN = range(3)
_SIZE = 3 * 8


class WakeFile:
    """The numbers. The driver creates the file, the source opens it; `path` is where it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), _SIZE)).cast("q")

    @classmethod
    def create(cls) -> WakeFile:
        """Create a file for one query. Raises OSError."""
        number, name = tempfile.mkstemp(prefix="group-coordinator-")
        with os.fdopen(number, "wb") as file:
            file.write(bytes(_SIZE))
        return cls(Path(name))

    @classmethod
    def open(cls, path: str) -> WakeFile | None:
        """Open the driver's file; None, and a warning, if it is not to be had."""
        try:
            found = cls(Path(path))
        # ValueError: there is less in the file than there must be.
        except (OSError, ValueError) as error:
            log.warning("timers are looked at every trigger.interval.ms: %s: %s", path, error)
            return None
        found._numbers[_IS_OPEN] = 1
        return found

    @property
    def due_ms(self) -> int:
        """From when on a timer may be due, by the wall clock; 0 at first."""
        return self._numbers[_DUE]

    @due_ms.setter
    def due_ms(self, value: int) -> None:
        self._numbers[_DUE] = value

    @property
    def wakes(self) -> int:
        """How often the source was woken."""
        return self._numbers[_WAKES]

    def wake(self) -> None:
        """Have the source begin a batch at once; a batch that it begins meanwhile is one, too."""
        self._numbers[_WAKES] += 1

    @property
    def is_open(self) -> bool:
        """Whether the source has opened the file."""
        return bool(self._numbers[_IS_OPEN])

    def delete(self) -> None:
        """Delete the file, if it is there; who has opened it keeps the numbers."""
        self.path.unlink(missing_ok=True)
