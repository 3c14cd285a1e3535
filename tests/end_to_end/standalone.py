"""Spark's standalone master and workers as processes of this machine, from the installed pyspark.

The nodes' Python is the one with which the tests' environment was created. As on a cluster, it
lacks the packages that the project needs.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.submitting import LIMIT_S, SPARK_HOME, TOP, Submitting
from tests.waiting import wait_until

_DEPLOY = "org.apache.spark.deploy"


class Standalone(Submitting):
    """A master and two workers of one core each, under a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"spark://127.0.0.1:{self.port}"
        self._write_python()

    def _write_python(self) -> None:
        """Write the nodes' Python, of the driver's release, because Spark refuses another one.

        Spark passes the driver's PYTHONPATH to the nodes. On other machines its folders do not
        exist. Here they do, so Python in a worker's folder keeps only relative paths.
        """
        self.python.write_text(
            "#!/bin/sh\n"
            f'case "$PWD" in {self.folder.resolve()}/worker-*)\n'
            "    PYTHONPATH=$(echo \"$PYTHONPATH\" | tr : '\\n' | "
            f"grep -v -e '^{sys.prefix}/lib/.*site-packages$' -e '^{TOP}/.src$' | paste -sd : -)\n"
            "    export PYTHONPATH;;\n"
            "esac\n"
            f'exec {sys._base_executable} "$@"\n'  # type: ignore[attr-defined]
        )
        self.python.chmod(0o755)

    def begin(self) -> None:
        """Start the master and the workers, and wait until the master knows both workers."""
        self._start("master", f"{_DEPLOY}.master.Master", "--port", str(self.port))
        log = self.folder / "master.log"
        wait_until(
            "the master listens", lambda: b"Starting Spark master at" in log.read_bytes(), LIMIT_S
        )
        for name in ("worker-1", "worker-2"):
            self._start(name, f"{_DEPLOY}.worker.Worker", "-c", "1", "-m", "1g", self.url)
        wait_until(
            "two workers", lambda: log.read_bytes().count(b"Registering worker") == 2, LIMIT_S
        )

    def submit(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start spark-submit as the page on clusters does; its output goes to `NAME.log`."""
        return self.submit_to(self.url, name, arguments, {"SPARK_HOME": str(SPARK_HOME)})

    def wait_ready(self, name: str) -> None:
        """Wait until a submitted job answers requests. Raises AssertionError if it ends before."""
        self.until_said(name, "ready", "\nready")

    def kill_worker(self, name: str) -> None:
        """Kill a worker's process with its executors, as when a machine fails."""
        self.kill(name)
        for pid in self.executors(name):
            os.kill(pid, signal.SIGKILL)

    def executors(self, worker: str) -> list[int]:
        """Return the processes of a worker's executors, which run in its folder."""
        home = str((self.folder / worker).resolve())
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                here = os.readlink(entry / "cwd")
                text = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if here.startswith(home) and b"CoarseGrainedExecutorBackend" in text:
                found.append(int(entry.name))
        return found

    def stop(self) -> None:
        """Kill all remaining processes, each by its process group."""
        workers = [name for name in ("worker-1", "worker-2") if name in self._children]
        executors = [pid for name in workers for pid in self.executors(name)]
        self.kill_all()
        for pid in executors:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _start(self, name: str, klass: str, *arguments: str) -> None:
        command = [str(SPARK_HOME / "bin" / "spark-class"), klass, "--host", "127.0.0.1"]
        given = {"SPARK_HOME": str(SPARK_HOME), "SPARK_WORKER_DIR": str(self.folder / name)}
        self.start(name, [*command, "--webui-port", "0", *arguments], given)
