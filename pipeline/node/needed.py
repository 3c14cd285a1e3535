"""The modules that the job needs, and the advice to a user if a Python lacks some of them.

This file imports only the standard library: its text is the beginning of `job.py` for spark-submit
(`pipeline.node.packaging`), and executors get its functions by value. Without this check, a user
that forgets the archive gets a traceback for one missing package at a time.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

# The modules that the driver and the executors import.
NEEDED = (
    "group_coordinator",
    "deltalake",
    "duckdb",
    "msgspec",
    "numpy",
    "pandas",
    "pyarrow",
    "google_crc32c",
    "obstore",
    "typer",
)
# The folder into which executors unpack the archive, in the working directory of their Python.
ARCHIVE_FOLDER = "group-coordinator"


def missing_modules(names: Sequence[str] = NEEDED) -> str | None:
    """Return one line that names the modules that this Python lacks, None if it has all."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    release = ".".join(map(str, sys.version_info[:2]))
    return f"Python {release} at {sys.executable} has no {', '.join(missing)}"


def advice(where: str, found: str) -> str:
    """Return what to do about modules that the driver or an executor lacks.

    `found` is the result of `missing_modules`.
    """
    if where == "driver":
        return (
            f"the driver's {found}. Submit with PYSPARK_DRIVER_PYTHON set to the Python of an "
            "environment in which this project is installed; in cluster mode, set PYTHONPATH to "
            "the unpacked archive (pipeline/node/CLUSTERS.md has the commands)"
        )
    return (
        f"an executor's {found}. `group-coordinator package --out DIR` writes an archive of what "
        f"executors need: submit with --archives DIR/{ARCHIVE_FOLDER}.tar.gz#{ARCHIVE_FOLDER} "
        f"--conf spark.executorEnv.PYTHONPATH={ARCHIVE_FOLDER}"
    )
