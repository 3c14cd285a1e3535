"""What pytest-xdist runs in one process: a file's tests, and all that share a start of Spark.

It is pytest-xdist's own `--dist loadfile` but for that. Its `--dist loadgroup` is without effect
under pytest 9.2, which no longer lets it rename tests.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling

from tests.class_archive import ArchiveMaker

TOP = Path(__file__).parent.parent
# The fixtures that share a start of Spark among files.
SHARED_STARTS = ("spark", "cluster")


@functools.cache
def starts_spark(file: str) -> bool:
    """Whether a test of a file starts Spark."""
    return "pytest.mark.spark" in (TOP / file).read_text("utf-8")


@functools.cache
def shared_start(file: str) -> str | None:
    """Name the fixture by which a test file shares a start of Spark with others, if it does."""
    if not starts_spark(file):
        return None
    text = (TOP / file).read_text("utf-8")
    found = (name for name in SHARED_STARTS if re.search(rf"[(,]\s*{name}[,:)]", text))
    return next(found, None)


class StartsShared(LoadFileScheduling):
    """Gives each process whole files, and to one process all files that share a start of Spark.

    Where a test needs Spark, the archive of its classes is made meanwhile.
    """

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        self._without_spark = "not spark" in config.option.markexpr
        self._archive = ArchiveMaker()
        config.add_cleanup(self._archive.end)

    def schedule(self) -> None:
        """Share out the tests; begin with the archive if one of them starts Spark."""
        if self.collection is None and not self._without_spark:
            collected = next(iter(self.registered_collections.values()))
            if any(starts_spark(nodeid.partition("::")[0]) for nodeid in collected):
                self._archive.begin()
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return file if self._without_spark else shared_start(file) or file
