"""The coordinators of a root under a supervisor: whatever ends is started again."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from pipeline.clock import monotonic, sleep
from pipeline.errors import Failure
from pipeline.node.node import checkpoint_uri
from pipeline.node.process import CoordinatorProcess
from pipeline.trials.torture.processes import jvm_of, workers_of

READY_S = 240.0
_LOOK_S = 0.05


class NodeEnded(Failure):
    """A coordinator ended to which nothing had been done."""


class Node:
    """One coordinator.

    `hit` is what was last done to it since its start, and excuses its end. With `forgets` set, its
    streaming checkpoint is deleted before its next start.
    """

    def __init__(self, root: str, config: Path, logs: Path, node_id: int) -> None:
        self.node_id = node_id
        self.hit: str | None = None
        self.forgets = False
        self.starts = 0
        self.query_ids: set[str] = set()
        self._root = root
        self._config = config
        self._logs = logs
        self._resume_at: float | None = None
        self._checkpoint = Path(checkpoint_uri(root, node_id))
        self._process = self._start()

    def _start(self) -> CoordinatorProcess:
        self.starts += 1
        self.hit = None
        log = self._logs / f"node-{self.node_id}-{self.starts}.log"
        return CoordinatorProcess(self._root, self._config, log, node_id=self.node_id)

    @property
    def is_paused(self) -> bool:
        """Whether it is stopped by `pause`."""
        return self._resume_at is not None

    def is_ready(self) -> bool:
        """Whether it runs and has printed `ready`."""
        return not self.is_paused and self._process.is_ready() and not self._process.has_ended()

    def tend(self) -> str | None:
        """Resume it when its pause is over, start it again when it has ended; says what it did.

        Raises NodeEnded if nothing was done to it since its start.
        """
        self._note_query()
        if self._resume_at is not None and monotonic() >= self._resume_at:
            self._resume_at = None
            self._process.resume()
            return f"node {self.node_id} goes on"
        if self._resume_at is not None or not self._process.has_ended():
            return None
        if self.hit is None:
            raise NodeEnded(
                f"node {self.node_id} ended by itself: {self._process.last_lines()[-600:]}"
            )
        return self._start_again()

    def _start_again(self) -> str:
        said = f"node {self.node_id} is started again after {self.hit}"
        if self.forgets:
            # A JVM that outlived its driver must not write to what is deleted.
            self._process.kill()
            self._note_query()
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            shutil.rmtree(f"{self._checkpoint}-bootstrap", ignore_errors=True)
            self.forgets = False
            said += ", without its streaming checkpoint"
        self._process = self._start()
        return said

    def _note_query(self) -> None:
        """Remember the id of its query: the transaction identifier of all that it writes."""
        with suppress(OSError, msgspec.MsgspecError, KeyError):
            content = (self._checkpoint / "metadata").read_bytes()
            self.query_ids.add(msgspec.json.decode(content)["id"])

    # --- what can be done to it -------------------------------------------------------------------

    def kill_driver(self) -> bool:
        """Kill the driver's Python alone; its JVM finds out by itself."""
        return self._kill(self._process.pid, "a kill of its driver")

    def kill_jvm(self) -> bool:
        """Kill the JVM alone; False if it has none yet."""
        return self._kill(jvm_of(self._process.pid), "a kill of its JVM")

    def kill_worker(self, choice: int) -> bool:
        """Kill one Python worker alone, `choice` of all; False if there is none."""
        workers = workers_of(self._process.pid)
        chosen = workers[choice % len(workers)] if workers else None
        return self._kill(chosen, "a kill of a Python worker")

    def kill_node(self) -> bool:
        """Kill driver and JVM at once."""
        if self._process.has_ended():
            return False
        self.hit = "a kill"
        self._process.kill()
        return True

    def pause(self, seconds: float) -> bool:
        """Let driver and JVM stand still for so long; False if it has ended."""
        if self._process.has_ended():
            return False
        self.hit = f"a pause of {seconds:.1f} s"
        with suppress(ProcessLookupError):
            self._process.pause()
        self._resume_at = monotonic() + seconds
        return True

    def _kill(self, pid: int | None, how: str) -> bool:
        if pid is None or self._process.has_ended():
            return False
        self.hit = how
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def stop(self) -> int:
        """Stop it in order; returns its exit status."""
        return self._process.stop()

    def kill(self) -> None:
        """End all of it."""
        if self._resume_at is not None:
            self._process.resume()
            self._resume_at = None
        self._process.kill()


class Cluster:
    """All nodes of a root."""

    def __init__(self, root: str, config: Path, logs: Path, count: int) -> None:
        self.nodes = [Node(root, config, logs, number + 1) for number in range(count)]
        self.said: list[str] = []

    def tend(self) -> None:
        """Tend every node. Raises NodeEnded."""
        for node in self.nodes:
            if (said := node.tend()) is not None:
                self.said.append(said)

    def wait(self, seconds: float) -> None:
        """Tend the nodes for so long."""
        until = monotonic() + seconds
        while monotonic() < until:
            self.tend()
            sleep(_LOOK_S)

    def settle(self) -> None:
        """Tend the nodes until all are ready. Raises Failure after `READY_S`."""
        until = monotonic() + READY_S
        while not all(node.is_ready() for node in self.nodes):
            if monotonic() > until:
                late = [str(node.node_id) for node in self.nodes if not node.is_ready()]
                raise Failure(f"not ready after {READY_S:.0f} s: node {', '.join(late)}")
            self.tend()
            sleep(_LOOK_S)


@contextmanager
def running_cluster(root: str, config: Path, logs: Path, count: int) -> Iterator[Cluster]:
    """Start the nodes of a root, and end them after the block."""
    cluster = Cluster(root, config, logs, count)
    try:
        yield cluster
    finally:
        for node in cluster.nodes:
            node.kill()
