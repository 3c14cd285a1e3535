"""A coordinator as a child process, and the descendants of a process."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from group_coordinator.pipeline.errors import Failure

# The command `group-coordinator` as a module.
COMMAND = "group_coordinator"
READY_TIMEOUT_S = 600.0
_STOP_TIMEOUT_S = 60.0
_LAST_LINES = 15


class CoordinatorProcess:
    """A child process of `group-coordinator run`, in a separate session, which logs to `log_path`.

    `module` is another module to run, with the same options.
    """

    def __init__(
        self,
        root: str,
        config: Path | None,
        log_path: Path,
        module: str = COMMAND,
        node_id: int | None = None,
    ) -> None:
        # A child coordinator is short-lived, so it builds no class archive.
        verb = ["run", "--no-new-archive"] if module == COMMAND else []
        command = [sys.executable, "-m", module, *verb, "--root", root]
        if config is not None:
            command += ["--config", str(config)]
        if node_id is not None:
            command += ["--node-id", str(node_id)]
        self.log_path = log_path
        self._command = command
        self._out_path = log_path.with_suffix(".out")
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the command in a separate session, so that it can be killed with its JVM."""
        with self.log_path.open("ab") as log, self._out_path.open("wb") as out:
            # The processes that inherit this output, Python and its JVM, hold the lock (`kill`
            # waits).
            fcntl.flock(out, fcntl.LOCK_SH)
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self.process.pid

    def await_ready(
        self,
        waiting: Callable[[float], None] = lambda _seconds: None,
        timeout_s: float = READY_TIMEOUT_S,
        look_s: float = 0.1,
    ) -> float:
        """Wait for the line `ready`; return how long it took, s.

        Looks for it every `look_s`, and then calls `waiting` with the seconds so far. Raises
        Failure, with the end of the log, if the coordinator ends or is not ready after `timeout_s`.
        """
        began = time.monotonic()
        while not self.is_ready():
            seconds = time.monotonic() - began
            self.check()
            if seconds > timeout_s:
                raise Failure(
                    f"the coordinator is not ready after {seconds:.0f} s: {self.last_lines()}"
                )
            waiting(seconds)
            time.sleep(look_s)
        return time.monotonic() - began

    def is_ready(self) -> bool:
        """Whether the coordinator has printed `ready`; it may have ended since."""
        return b"ready" in self._out_path.read_bytes().splitlines()

    def has_ended(self) -> bool:
        """Whether the driver's Python has ended; its JVM may still run."""
        return self.process.poll() is not None

    def check(self) -> None:
        """Raise Failure, with the status and the end of the log, if the coordinator has ended."""
        if self.has_ended():
            status = self.process.wait()
            how = f"with status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
            raise Failure(f"the coordinator ended {how}: {self.last_lines()}")

    def stop(self) -> int:
        """Stop the coordinator between batches; return its exit status."""
        return end(self.process, _STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the coordinator and its JVM, like a power cut; return when both have ended."""
        with self._out_path.open("rb") as out:
            try:
                fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # The JVM is no child of this process, and may still write a batch.
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
                fcntl.flock(out, fcntl.LOCK_EX)
        self.process.wait()

    def last_lines(self) -> str:
        """Return the last lines of the log."""
        lines = self.log_path.read_text("utf-8", "replace").splitlines()
        return "\n".join(lines[-_LAST_LINES:])


def end(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """Ask a process to end, and kill it after the timeout; return its exit status."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


_PROC = Path("/proc")


class Process(NamedTuple):
    """A process: its id, the id of its parent, and its name."""

    pid: int
    parent: int
    name: str


def descendants(pid: int) -> list[Process]:
    """Return the children of a process and all their descendants; empty without /proc."""
    try:
        numbers = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
    except OSError:
        return []
    processes = [found for number in numbers if (found := _read(number)) is not None]
    family, found_pids = [], {pid}
    while more := [p for p in processes if p.parent in found_pids and p.pid not in found_pids]:
        family += more
        found_pids |= {process.pid for process in more}
    return family


def jvm_of(pid: int) -> int | None:
    """Return the process id of a driver's JVM, None if it has none."""
    return next((each.pid for each in descendants(pid) if each.name == "java"), None)


def _read(pid: int) -> Process | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        # The process has ended since it was listed.
        return None
    # man proc: pid (name) state ppid ...; a name may have spaces and parentheses.
    name, _, rest = text.partition("(")[2].rpartition(")")
    state, parent = rest.split()[:2]
    return None if state == "Z" else Process(pid, int(parent), name)
