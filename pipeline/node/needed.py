"""What a Python needs to run the job, and what to tell a person whose Python lacks it.

`job.py`, which spark-submit starts, begins with this file (`pipeline.node.packaging`), and
executors get its functions by value. So it imports nothing but Python's own modules. Without the
look, whoever forgets the archive would read a traceback for one missing package after the other.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

# The modules that the job imports, on the driver and, through the stateful step, on executors.
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
# The name under which executors unpack the archive, in the folder where their Python starts.
ARCHIVE_FOLDER = "group-coordinator"


def missing_modules(names: Sequence[str] = NEEDED) -> str | None:
    """Return one line that names what this Python cannot find; None if all is there."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    release = ".".join(map(str, sys.version_info[:2]))
    return f"Python {release} at {sys.executable} has no {', '.join(missing)}"


def advice(where: str, found: str) -> str:
    """What a person does about modules that are missing on the driver or on an executor."""
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
