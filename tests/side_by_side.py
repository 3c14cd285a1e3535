"""What pytest-xdist runs in one process: a file's tests, and all that share a start of Spark.

Its own `--dist loadgroup` is without effect under pytest 9.2, which no longer lets it rename tests.
"""

from __future__ import annotations

import functools
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).parent


@functools.cache
def start_of(file: str) -> str | None:
    """Name the start of Spark that a test file shares with others; None if it needs none.

    Coordinators that are processes of their own, or the session of all tests.
    """
    if "pytest.mark.spark" not in (TESTS.parent / file).read_text("utf-8"):
        return None
    return "processes" if "end_to_end" in Path(file).parts else "session"


class StartsShared(LoadFileScheduling):
    """Gives each process whole files, and to one process all files that share a start of Spark."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return start_of(file) or file
