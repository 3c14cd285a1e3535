"""Where the tests keep their files: in memory, where there is plenty of it.

Tests write very many small files. On a disk they take more CPU time, and wait for it whenever
DuckDB, delta-rs or a test forces a file to it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_NAME = "group-coordinator-tests-"
# The tests that start no Spark write 230 MB in all; JVMs need memory beside the files.
_LEAST_FREE_BYTES = 4 << 30


def begin() -> Path | None:
    """Have temporary files of this process and its children made in memory; return the folder.

    None, and nothing is changed, if the user has chosen a place by TMPDIR or there is too little.
    Folders that runs left behind, because they failed or were killed, are removed.
    """
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return None
    for left in _MEMORY.glob(f"{_NAME}*"):
        if not Path("/proc", left.name.removeprefix(_NAME)).exists():
            shutil.rmtree(left, ignore_errors=True)
    if min(shutil.disk_usage(_MEMORY).free, _available_bytes()) < _LEAST_FREE_BYTES:
        return None
    folder = _MEMORY / f"{_NAME}{os.getpid()}"
    folder.mkdir(mode=0o700)
    os.environ["TMPDIR"] = str(folder)
    # Whoever asked before is asked again.
    tempfile.tempdir = None
    return folder


def _available_bytes() -> int:
    """The machine's memory that nobody uses."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kilobytes) << 10


def end(folder: Path) -> None:
    """Give the memory back."""
    shutil.rmtree(folder, ignore_errors=True)
