"""Coordinators that tests, benchmarks and trials kill, pause and start again."""

from __future__ import annotations

import os
import signal
import subprocess

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node.process import CoordinatorProcess, descendants
from group_coordinator.pipeline.session.fork_server import NAME


class KillableCoordinator(CoordinatorProcess):
    """A coordinator with which anything may happen."""

    def start_again(self) -> None:
        """Start it anew, once it has ended."""
        self.process.wait()
        self.process = self.start()

    def ask_to_stop(self) -> None:
        """Ask it to hand its partitions over and to end; returns at once."""
        self.process.send_signal(signal.SIGTERM)

    def pause(self) -> None:
        """Let it and its JVM stand still, as a machine does that is short of everything."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.killpg(self.pid, signal.SIGCONT)

    def wait(self, timeout_s: float) -> int:
        """Wait until it ends by itself; returns its exit status, raises Failure if it does not."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise Failure(f"still running after {timeout_s:g} s") from error


def workers_of(pid: int) -> list[int]:
    """The Python processes of a driver's Spark that have started none themselves.

    They are below the JVM, or below the fork server; then the JVM has started what stands in for
    them, under another name than Python's.
    """
    starters = [each.pid for each in descendants(pid) if each.name in ("java", NAME)]
    below = [each for starter in starters for each in descendants(starter)]
    parents = {each.parent for each in below}
    return [each.pid for each in below if each.pid not in parents and "python" in each.name]
