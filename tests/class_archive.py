"""The archive of Spark's classes, made beside the tests that need no Spark.

Making it takes a start of Spark, as long as a minute; `tests.support.jvm` says what it saves.
"""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.support.jvm import archive_path


class ArchiveMaker:
    """A process that makes the archive, from `begin` on, unless there is one already."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start it. The archive is another one for another Java, Spark or virtual environment."""
        if not archive_path().exists():
            self.process = subprocess.Popen([sys.executable, "-m", "tests.support.jvm"])

    def end(self) -> None:
        """End it, done or not: told to end, it ends the coordinator that it has started.

        By SIGTERM: a shell has the jobs that it runs in the background ignore SIGINT. Raises
        RuntimeError if it has failed.
        """
        if self.process is None:
            return
        if (status := self.process.poll()) is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()
        elif status:
            raise RuntimeError(f"the archive of Spark's classes was not made: status {status}")
