"""JVMs that live for seconds or minutes, as those of tests and trials do.

A coordinator's JVM spends half of its start on loading and verifying Spark's classes. An archive of
them (JEP 350) is made once for a machine's Java and Spark: a session then takes 5.6 instead of
11.5 s of CPU to start and run its first query. Nothing is compiled beyond C1, and the serial
collector is used: what compiles well, with collectors that work beside it, takes half as much CPU
again for a coordinator's start and first minute.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from pipeline.node.process import CoordinatorProcess
from pipeline.tables.store import ensure_tables
from pipeline.trials.interrupt import on_interrupt

VARIABLE = "JDK_JAVA_OPTIONS"
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# A JVM that cannot use an archive runs without it; what it logs about that is for its makers.
_QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_DUMP_S = 300.0


def use_short_lived_jvms() -> None:
    """Have JVMs that this process and its children start begin fast, unless the user decided.

    With an archive, if there is one; a later call may find one that was made since.
    """
    if os.environ.get(VARIABLE, _SHORT_LIVED) == _SHORT_LIVED:
        archive = archive_path()
        with_it = f" {_QUIET} -XX:SharedArchiveFile={archive}" if archive.exists() else ""
        os.environ[VARIABLE] = _SHORT_LIVED + with_it


def archive_path() -> Path:
    """Where the archive for this Java and this Spark is, or would be."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java") or ""
    of_what = (os.path.realpath(java), sys.prefix, version("pyspark"), _SHORT_LIVED)
    key = hashlib.sha256(repr(of_what).encode()).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "group-coordinator" / f"spark-{key}.jsa"


def make_archive(say: Callable[[str], None]) -> None:
    """Run a coordinator once and keep the classes that it loaded, unless that has been done.

    Raises Failure if the coordinator does not start, OSError if the cache cannot be written.
    """
    archive = archive_path()
    if archive.exists():
        return
    began = time.monotonic()
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="class-archive-", dir=archive.parent) as folder:
        made = Path(folder) / archive.name
        root = Path(folder) / "root"
        root.mkdir()
        ensure_tables(str(root))
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = (
            f"{_SHORT_LIVED} {_QUIET} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        )
        try:
            process = CoordinatorProcess(str(root), None, Path(folder) / "run.log")
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before
        try:
            process.await_ready()
            process.stop()
            _await_end(Path(folder) / "run.out")
        finally:
            process.kill()
        if made.exists():
            made.replace(archive)
    say(f"an archive of Spark's classes was made in {time.monotonic() - began:.0f} s: {archive}")


def _await_end(held: Path) -> None:
    """Wait until the JVM, which writes the archive as it ends, holds its output no more."""
    until = time.monotonic() + _DUMP_S
    with held.open("rb") as out:
        while time.monotonic() < until:
            try:
                fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.2)
            else:
                return


def _raise_interrupt() -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # The coordinator that was started must end with this process.
    with on_interrupt(_raise_interrupt):
        make_archive(lambda text: print(text, file=sys.stderr))
