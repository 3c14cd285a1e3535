"""Spark's standalone master and workers as processes of this machine, from the installed pyspark.

The nodes' Python is the one that the tests' environment was made from: it has none of the packages
that the project needs, as a cluster's has none.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from pipeline.node.shipped import ARCHIVE_FOLDER

if TYPE_CHECKING:
    from pipeline.client import GroupMember
    from pipeline.node.packaging import Packaged

TOP = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_LIMIT_S = 240.0


def until(what: str, holds: Callable[[], bool], limit_s: float = _LIMIT_S) -> None:
    """Wait until it holds. Raises AssertionError, which says what did not."""
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, f"{what}: not within {limit_s:.0f} s"
        time.sleep(0.2)


def shipped(package: Packaged) -> list[str]:
    """Return the options of spark-submit that give executors the packages they lack."""
    return [
        *("--archives", f"{package.archive}#{ARCHIVE_FOLDER}"),
        *("--conf", f"spark.executorEnv.PYTHONPATH={ARCHIVE_FOLDER}"),
    ]


def is_committed(member: GroupMember, offset: int) -> bool:
    """Commit an offset of the member's first partition; return whether it is what is read back."""
    partition = member.assignment[0]
    member.poll_positions(100)
    member.commit({partition: offset}, timeout_ms=120_000)
    found = member.committed([partition], timeout_ms=120_000)[partition]
    return found is not None and found.offset == offset


class Standalone:
    """A master and two workers of one core each, under a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"spark://127.0.0.1:{self.port}"
        self.python = folder / "python"
        self._write_python()
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def _write_python(self) -> None:
        """Write the nodes' Python, of the driver's release: another one is refused by Spark itself.

        Spark hands the driver's PYTHONPATH to the nodes. On other machines its folders do not
        exist; here they do, so Python in a worker's folder keeps only what is relative to it.
        """
        self.python.write_text(
            "#!/bin/sh\n"
            f'case "$PWD" in {self.folder.resolve()}/worker-*)\n'
            "    PYTHONPATH=$(echo \"$PYTHONPATH\" | tr : '\\n' | "
            f"grep -v -e '^{sys.prefix}/lib/.*site-packages$' -e '^{TOP}$' | paste -sd : -)\n"
            "    export PYTHONPATH;;\n"
            "esac\n"
            f'exec {sys._base_executable} "$@"\n'  # type: ignore[attr-defined]
        )
        self.python.chmod(0o755)

    def begin(self) -> None:
        """Start the master and the workers, and wait until the master knows both."""
        self._start("master", f"{_DEPLOY}.master.Master", "--port", str(self.port))
        log = self.folder / "master.log"
        until("the master listens", lambda: b"Starting Spark master at" in log.read_bytes())
        for name in ("worker-1", "worker-2"):
            self._start(name, f"{_DEPLOY}.worker.Worker", "-c", "1", "-m", "1g", self.url)
        until("two workers", lambda: log.read_bytes().count(b"Registering worker") == 2)

    def submit(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start spark-submit, as the README does; its output goes to the file `NAME.log`."""
        command = [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--master", self.url, "--driver-memory", "1g", "--executor-memory", "512m"),
            *arguments,
        ]
        python = {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": str(self.python)}
        # The driver's environment has this project installed: it is this checkout.
        return self._spawn(name, command, {**python, "PYTHONPATH": str(TOP)})

    def wait_ready(self, name: str) -> None:
        """Wait until a submitted job answers requests. Raises AssertionError if it ends before."""

        def is_ready() -> bool:
            assert self._children[name].poll() is None, self.text(name)[-2_000:]
            return "\nready" in self.text(name)

        until(f"{name} is ready", is_ready)

    def text(self, name: str) -> str:
        """What a process has printed."""
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def kill_worker(self, name: str) -> None:
        """Kill a worker's process, and with it its executors, as a machine that goes down."""
        child = self._children.pop(name)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for pid in self.executors(name):
            os.kill(pid, signal.SIGKILL)

    def executors(self, worker: str) -> list[int]:
        """The processes of a worker's executors: those that run in its folder."""
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
        """Kill what still runs, each by its own process group."""
        workers = [name for name in ("worker-1", "worker-2") if name in self._children]
        executors = [pid for name in workers for pid in self.executors(name)]
        for child in self._children.values():
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        for pid in executors:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _start(self, name: str, klass: str, *arguments: str) -> None:
        command = [str(SPARK_HOME / "bin" / "spark-class"), klass, "--host", "127.0.0.1"]
        places = {"SPARK_WORKER_DIR": str(self.folder / name)}
        self._spawn(name, [*command, "--webui-port", "0", *arguments], places)

    def _spawn(
        self, name: str, command: list[str], more: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        kept = {key: value for key, value in os.environ.items() if not is_ours(key)}
        given = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
        with (self.folder / f"{name}.log").open("wb") as out:
            child = subprocess.Popen(
                command,
                env={**kept, **given, **more},
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )
        self._children[name] = child
        return child


def is_ours(key: str) -> bool:
    """What would lead the cluster's Python to this environment's packages."""
    return re.match("PYTHON|PYSPARK|SPARK|VIRTUAL_ENV", key) is not None
