"""Coordinators that tests, benchmarks and trials kill, pause and restart."""

from __future__ import annotations

import os
import signal
import subprocess

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node.process import CoordinatorProcess, descendants
from group_coordinator.pipeline.session.fork_server import NAME


class KillableCoordinator(CoordinatorProcess):
    """A coordinator that can be killed, paused and restarted."""

    def start_again(self) -> None:
        """Start it again after its end."""
        self.process.wait()
        self.process = self.start()

    def ask_to_stop(self) -> None:
        """Ask it to hand over its partitions and to end; return at once."""
        self.process.send_signal(signal.SIGTERM)

    def pause(self) -> None:
        """Suspend it and its JVM, as on a machine without resources."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it."""
        os.killpg(self.pid, signal.SIGCONT)

    def wait(self, timeout_s: float) -> int:
        """Wait until it ends by itself; return its exit status. Raises Failure on a timeout."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise Failure(f"still running after {timeout_s:g} s") from error


def workers_of(pid: int) -> list[int]:
    """Return the Python processes of a driver's Spark without Python children.

    Their parent is the JVM or the fork server. With the fork server, the JVM has started processes
    in their place, with another name than Python's.
    """
    starters = [each.pid for each in descendants(pid) if each.name in ("java", NAME)]
    below = [each for starter in starters for each in descendants(starter)]
    parents = {each.parent for each in below}
    return [each.pid for each in below if each.pid not in parents and "python" in each.name]
