"""What pytest-xdist runs in one process: a file's tests, and all that share a start of Spark.

What takes longest comes first, so that both processes end at about the same time: the tests that
start Spark, then the files of `LONGEST`, then all others.

Its own `--dist loadgroup` is without effect under pytest 9.2, which no longer lets it rename tests.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).parent
# The files without Spark that take more than two seconds, by the CPU time that they take.
LONGEST = (
    "trials/test_simulation.py",
    "pipeline/client/test_member.py",
    "trials/test_malformed.py",
    "test_house.py",
    "pipeline/replay/test_demo_workers.py",
    "pipeline/upkeep/test_compaction.py",
    "pipeline/cli/test_imports.py",
    "pipeline/upkeep/test_retention.py",
    "trials/test_torture_promises.py",
    "properties/test_assignors.py",
    "pipeline/records/test_records.py",
    "pipeline/client/test_admin.py",
    "pipeline/client/test_worker.py",
)


@functools.cache
def start_of(file: str) -> str | None:
    """Name the start of Spark that a test file needs; None if it needs none.

    Many share the coordinators that are processes of their own, or the session of all tests, which
    is the fixture `spark`. Others start what no other file uses.
    """
    text = (TESTS.parent / file).read_text("utf-8")
    if "pytest.mark.spark" not in text:
        return None
    if "end_to_end" in Path(file).parts:
        return "processes"
    return "session" if re.search(r"[(,]\s*spark[,:)]", text) else file


def turn_of(file: str) -> int:
    """When a test file's turn comes: files with a lower number begin first."""
    start = start_of(file)
    if start is not None:
        return -1 if start == file else -2
    name = file.removeprefix("tests/")
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


class StartsShared(LoadFileScheduling):
    """Gives each process whole files, and to one process all files that share a start of Spark."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return start_of(file) or file
