"""JVMs that live for seconds or minutes, as those of tests and trials.

With the archive of Spark's classes (`pipeline.session.java`) a session takes 5.6 instead of 11.5 s
of CPU to start and run its first query. Only the C1 compiler and the serial collector are used. The
better compiler and concurrent collectors take half as much CPU again for a coordinator's start and
first minute. These JVMs have a separate archive of 165 MB in the virtual environment. Each clean
checkout creates a new one.
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


def use_short_lived_jvms(files: Path) -> None:
    """Let JVMs of this process and its children start fast, unless the user set any options.

    `files` is the folder of their temporary files, of which a killed JVM leaves up to 0.5 GB. If
    there is an archive, it is used; a later call may find one that was created since.
    """
    options = f'{_SHORT_LIVED} "-Djava.io.tmpdir={files}"'
    if os.environ.get(JAVA_OPTIONS, options) == options:
        archive = archive_path()
        with_it = f" {QUIET_ARCHIVE} -XX:SharedArchiveFile={archive}" if archive.exists() else ""
        os.environ[JAVA_OPTIONS] = options + with_it


def archive_path() -> Path:
    """Return the path of the archive for this Java and this Spark."""
    of_what = (os.path.realpath(find_java() or ""), sys.prefix, version("pyspark"), _SHORT_LIVED)
    archive = _cached("spark", *of_what)
    return archive if sys.prefix == sys.base_prefix else Path(sys.prefix, "cache", archive.name)


def make_archive(say: Callable[[str], None]) -> None:
    """Run a coordinator once and keep its loaded classes, unless there is an archive.

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
    # The started coordinator must end with this process.
    with interrupted_by_signals():
        make_archive(lambda text: print(text, file=sys.stderr))
