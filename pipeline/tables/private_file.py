"""Writing a file of secrets: its owner's alone, and whole at any time."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


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
