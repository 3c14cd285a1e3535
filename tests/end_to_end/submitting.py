"""Jobs of spark-submit and other processes, on any cluster of these tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from group_coordinator.pipeline.node.needed import ARCHIVE_FOLDER
from tests.ends import check_runs
from tests.users import make_own_folders
from tests.waiting import wait_until

if TYPE_CHECKING:
    from group_coordinator.pipeline.client import GroupMember
    from group_coordinator.pipeline.node.packaging import Packaged

TOP = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
# A time limit for starting Java processes and fetching packages.
LIMIT_S = 240.0


def shipped(package: Packaged) -> list[str]:
    """Return the options of spark-submit that give executors the packages they lack."""
    return [
        *("--archives", f"{package.archive}#{ARCHIVE_FOLDER}"),
        *("--conf", f"spark.executorEnv.PYTHONPATH={ARCHIVE_FOLDER}"),
    ]


def is_committed(member: GroupMember, offset: int) -> bool:
    """Commit an offset of the member's first partition; return whether the same is read back."""
    partition = member.assignment[0]
    member.poll_positions(100)
    member.commit({partition: offset}, timeout_ms=120_000)
    found = member.committed([partition], timeout_ms=120_000)[partition]
    return found is not None and found.offset == offset


class Submitting:
    """Processes of a cluster under a folder, by name; the output of each is in `NAME.log`.

    `python` is the nodes' Python, if the folder has one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # All processes are started here.
        make_own_folders(folder)
        self.python = folder / "python"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, command: list[str], given: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a process, with this environment but without paths to this project's packages."""
        kept = {key: value for key, value in os.environ.items() if not is_ours(key)}
        with (self.folder / f"{name}.log").open("wb") as out:
            child = subprocess.Popen(
                command,
                env={**kept, "SPARK_LOCAL_IP": "127.0.0.1", **given},
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )
        self._children[name] = child
        return child

    def submit_to(
        self, master: str, name: str, arguments: tuple[str, ...], given: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start spark-submit, as the page on clusters does."""
        command = [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--master", master, "--driver-memory", "1g", "--executor-memory", "512m"),
            *arguments,
        ]
        python = {
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": str(self.python),
            # The driver's environment has this project installed: it is this checkout.
            "PYTHONPATH": str(TOP / ".src"),
        }
        return self.start(name, command, {**python, **given})

    def text(self, name: str) -> str:
        """Return the output of a process."""
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def until_said(
        self,
        name: str,
        what: str,
        text: str,
        said: Callable[[], str] | None = None,
        limit_s: float = LIMIT_S,
    ) -> None:
        """Wait until a submitted job has printed a text; `said` may return other output of the job.

        Raises AssertionError if it ends before.
        """

        def is_said() -> bool:
            check_runs(self._children[name].poll(), self.text(name)[-2_000:])
            return text in (self.text(name) if said is None else said())

        wait_until(f"{name} is {what}", is_said, limit_s)

    def kill(self, name: str) -> None:
        """Kill a process and its descendants, and forget it."""
        child = self._children.pop(name)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()

    def kill_all(self) -> None:
        """Kill all remaining processes, each by its process group."""
        for name in list(self._children):
            self.kill(name)


def is_ours(key: str) -> bool:
    """Return whether a variable would give the cluster's Python this environment's packages."""
    return re.match("PYTHON|PYSPARK|SPARK|VIRTUAL_ENV", key) is not None
