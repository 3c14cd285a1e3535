"""JVMs that live for seconds or minutes, as those of tests and trials do.

With the archive of Spark's classes (`pipeline.session.java`) a session takes 5.6 instead
of 11.5 s of CPU to start and run its first query. Nothing is compiled beyond C1, and the serial
collector is used: what compiles well, with collectors that work beside it, takes half as much CPU
again for a coordinator's start and first minute. These JVMs have an archive of their own, 165 MB
that lie in the virtual environment and go with it: each clean checkout has a new one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from group_coordinator.pipeline.interrupt import interrupted_by_signals
from group_coordinator.pipeline.node import archive_maker
from group_coordinator.pipeline.session.java import JAVA_OPTIONS, QUIET_ARCHIVE, _cached, find_java

_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def use_short_lived_jvms() -> None:
    """Have JVMs that this process and its children start begin fast, unless the user decided.

    With an archive, if there is one; a later call may find one that was made since.
    """
    if os.environ.get(JAVA_OPTIONS, _SHORT_LIVED) == _SHORT_LIVED:
        archive = archive_path()
        with_it = f" {QUIET_ARCHIVE} -XX:SharedArchiveFile={archive}" if archive.exists() else ""
        os.environ[JAVA_OPTIONS] = _SHORT_LIVED + with_it


def archive_path() -> Path:
    """Where the archive for this Java and this Spark is, or would be."""
    of_what = (os.path.realpath(find_java() or ""), sys.prefix, version("pyspark"), _SHORT_LIVED)
    archive = _cached("spark", *of_what)
    return archive if sys.prefix == sys.base_prefix else Path(sys.prefix, "cache", archive.name)


def make_archive(say: Callable[[str], None]) -> None:
    """Run a coordinator once and keep the classes that it loaded, unless that has been done.

    Raises Failure if the coordinator does not start, OSError if the cache cannot be written.
    """
    archive = archive_path()
    if archive.exists():
        return
    began = time.monotonic()
    if archive_maker.make_archive(archive, _SHORT_LIVED):
        seconds = time.monotonic() - began
        say(f"an archive of Spark's classes was made in {seconds:.0f} s: {archive}")


if __name__ == "__main__":
    # The coordinator that was started must end with this process.
    with interrupted_by_signals():
        make_archive(lambda text: print(text, file=sys.stderr))
