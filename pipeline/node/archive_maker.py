"""The process that makes the archive of Spark's classes, with which later JVMs start faster.

    python -m group_coordinator.pipeline.node.archive_maker ARCHIVE

It runs a coordinator on an empty temporary root, with idle CPU time only (SCHED_IDLE); the
coordinator's JVM writes the archive as it exits. The process ends when its standard input is
closed, and deletes its temporary files. A file lock lets only one process make the archive. The
rename is the commit point: a partial file never has the archive's name.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from group_coordinator.pipeline import background
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.interrupt import interrupts_deferred
from group_coordinator.pipeline.node.process import CoordinatorProcess
from group_coordinator.pipeline.session.java import JAVA_OPTIONS, QUIET_ARCHIVE
from group_coordinator.pipeline.tables import ensure_tables

log = logging.getLogger(__name__)

_DUMP_S = 300.0
# Runs a JVM in a folder, with options that name the archive for it to write.
Record: TypeAlias = "Callable[[Path, str], None]"


class ArchiveMaker:
    """A process that makes an archive by running `module`, until it is done or `stop` is called."""

    def __init__(self, module: str = "group_coordinator.pipeline.node.archive_maker") -> None:
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, archive: Path | None) -> None:
        """Start the process; if `archive` is None there is nothing to make."""
        if archive is None:
            return
        log.info(
            "creating the archive %s of Spark's classes, which makes later starts faster", archive
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module, str(archive)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self) -> None:
        """End the process, if it was started, by closing its standard input."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


def record_start(folder: Path, options: str) -> None:
    """Run a coordinator on a root in `folder`, from its start to the exit of its JVM.

    `options` are passed to the JVM. Raises Failure if the coordinator does not start.
    """
    root = folder / "root"
    root.mkdir()
    ensure_tables(str(root))
    process: CoordinatorProcess | None = None
    try:
        with interrupts_deferred():
            process = _started(root, folder / "run.log", f"{options.strip()} -Xlog:disable")
        process.await_ready()
        process.stop()
        _await_end(folder / "run.out")
    finally:
        if process is not None:
            process.kill()


def _started(root: Path, log_path: Path, options: str) -> CoordinatorProcess:
    before = os.environ.get(JAVA_OPTIONS)
    os.environ[JAVA_OPTIONS] = options
    try:
        return CoordinatorProcess(str(root), None, log_path)
    finally:
        os.environ.pop(JAVA_OPTIONS)
        if before is not None:
            os.environ[JAVA_OPTIONS] = before


def make_archive(archive: Path, options: str = "", record: Record = record_start) -> bool:
    """Run a coordinator with these JVM options, and keep the archive of its loaded classes.

    `record` runs the coordinator in a folder, which is then deleted. Returns False if the archive
    exists or another process is making it. Raises Failure if the coordinator does not start or its
    JVM writes no archive, OSError if the cache cannot be written.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if archive.exists():
            return False
        with tempfile.TemporaryDirectory(prefix="class-archive-", dir=archive.parent) as folder:
            made = Path(folder) / archive.name
            record(Path(folder), f"{options} {QUIET_ARCHIVE} -XX:ArchiveClassesAtExit={made}")
            if not made.exists():
                raise Failure(f"the JVM did not write the archive of its classes: {made}")
            made.replace(archive)
    return True


def forget_others(archive: Path) -> None:
    """Delete the archives of earlier releases of Java or Spark."""
    beginning = archive.stem.rpartition("-")[0]
    for other in archive.parent.glob(f"{beginning}-*"):
        if other.stem != archive.stem:
            other.unlink(missing_ok=True)


def _await_end(held: Path) -> None:
    """Wait up to _DUMP_S until the JVM closes its output, after it has written the archive."""
    until = time.monotonic() + _DUMP_S
    with held.open("rb") as out:
        while time.monotonic() < until:
            try:
                fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.2)
            else:
                return


def main(archive: str, record: Record = record_start) -> None:
    """Make the archive by `record`, and delete the archives of other releases of Java and Spark."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    # The standard input is closed when the parent has ended.
    background.run_at_eof(sys.stdin.fileno(), "input", lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        if make_archive(Path(archive), record=record):
            forget_others(Path(archive))
    except KeyboardInterrupt:
        # The parent ends. `record_start` has already killed the coordinator.
        return


if __name__ == "__main__":
    main(sys.argv[1])
