"""Scheduling of the tests over processes: one process runs all files that share a start of Spark.

This is pytest-xdist's `--dist loadfile` with one exception. Its `--dist loadgroup` has no effect
under pytest 9.2, because pytest no longer lets it rename tests.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling

TOP = Path(__file__).parent.parent
# The fixtures that share a start of Spark among files, and the name of what they share.
SHARED_STARTS = {
    "spark": "spark",
    "spark_with_delta": "spark",
    "light_spark": "spark",
    "cluster": "cluster",
}
# Files with tests that take minutes use a separate start. In one process after each other, they and
# the others took 20 of the 33 minutes of the full tier.
ALONE = (
    "tests/pipeline/spark/test_views.py",
    "tests/pipeline/tables/test_delta_reads.py",
    "tests/pipeline/upkeep/test_plain_in_spark.py",
)


@functools.cache
def starts_spark(file: str) -> bool:
    """Return whether a test of a file starts Spark."""
    return "pytest.mark.spark" in (TOP / file).read_text("utf-8")


@functools.cache
def shared_start(file: str) -> str | None:
    """Return the name of the start of Spark that a test file shares with others, or None."""
    if file in ALONE or not starts_spark(file):
        return None
    text = (TOP / file).read_text("utf-8")
    return next(
        (
            start
            for fixture, start in SHARED_STARTS.items()
            if re.search(rf"[(,]\s*{fixture}[,:)]", text)
        ),
        None,
    )


class StartsShared(LoadFileScheduling):
    """Assign whole files to a process, and all files that share a start of Spark to the same one.

    A start of Spark takes 11.5 s of CPU. With pytest-xdist's own `loadfile`, each of four processes
    would start the session of the `spark` fixture.
    """

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        self._without_spark = "not spark" in config.option.markexpr

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return file if self._without_spark else shared_start(file) or file
