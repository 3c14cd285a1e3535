"""The coordinators of a root under a supervisor: whatever ends is started again."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from group_coordinator.pipeline import background
from group_coordinator.pipeline.clock import monotonic, sleep
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node.process import jvm_of
from group_coordinator.pipeline.node.resumption import checkpoint_uri
from tests.support.jvm import use_short_lived_jvms
from tests.support.process import KillableCoordinator, workers_of

READY_S = 600.0
_LOOK_S = 0.05
_SHOWN = 600
_STOP = "a stop in order"
_FENCED = "fenced: epoch"
# After a pause longer than its lease, a node notices within this time that it is fenced. After a
# kill of its Python worker, it notices within this time that its batch failed.
_FINDS_OUT_S = 5.0


class NodeEnded(Failure):
    """A coordinator ended to which nothing had been done."""


class Node:
    """A coordinator.

    `hit` is the last fault since its start, which excuses its end. With `forgets`, its streaming
    checkpoint is deleted before its next start. With `is_restored`, the checkpoint is copied before
    its next start, or replaced by an existing copy. `recoveries` has the seconds from each end
    until the coordinator was ready again, by the cause; another end before that restarts the time.
    """

    def __init__(self, root: str, config: Path, logs: Path, node_id: int) -> None:
        self.node_id = node_id
        self.hit: str | None = None
        self.forgets = False
        self.is_restored = False
        # How often an older copy of its streaming checkpoint was put back.
        self.restored = 0
        self.query_ids: set[str] = set()
        self.recoveries: list[tuple[str, float]] = []
        # How many of its starts ended because a later epoch had fenced them.
        self.fenced = 0
        self._recovering: tuple[str, float] | None = None
        self._root = root
        self._config = config
        self._logs = logs
        self._resume_at: float | None = None
        self._hit_at = -_FINDS_OUT_S
        self._checkpoint = Path(checkpoint_uri(root, node_id))
        self._processes: list[KillableCoordinator] = []
        self._start()

    def _start(self) -> None:
        self.hit = None
        # Whether it must end eventually, because of a signal or a killed process.
        self._is_doomed = False
        # Whether its only fault was SIGTERM.
        self._ends_in_order = False
        log = self._logs / f"node-{self.node_id}-{len(self._processes) + 1}.log"
        process = KillableCoordinator(self._root, self._config, log, node_id=self.node_id)
        self._processes.append(process)

    @property
    def starts(self) -> int:
        """How many times it was started."""
        return len(self._processes)

    @property
    def _process(self) -> KillableCoordinator:
        return self._processes[-1]

    @property
    def is_paused(self) -> bool:
        """Whether it is stopped by `pause`."""
        return self._resume_at is not None

    def is_ready(self) -> bool:
        """Return whether it runs, has printed `ready`, and had time to notice its faults."""
        if self.is_paused or self._is_doomed or monotonic() < self._hit_at + _FINDS_OUT_S:
            return False
        return self._process.is_ready() and not self._process.has_ended()

    def tend(self) -> str | None:
        """Resume it after its pause, or restart it after its end; return the action.

        Raises NodeEnded if there was no fault since its start, or if an orderly stop failed.
        """
        self._note_query()
        if self._recovering is not None and self.is_ready():
            hit, since = self._recovering
            self.recoveries.append((hit, monotonic() - since))
            self._recovering = None
        if self._resume_at is not None and monotonic() >= self._resume_at:
            self._resume_at = None
            self._hit_at = monotonic()
            self._process.resume()
            return f"node {self.node_id} goes on"
        if self._resume_at is not None or not self._process.has_ended():
            return None
        self.fenced += _FENCED in self._process.last_lines()
        if self._ends_in_order and self.hit == _STOP and (status := self._process.wait(0)) != 0:
            last = self._process.last_lines()
            raise NodeEnded(
                f"node {self.node_id} ended with status {status}, not in order: {last[-_SHOWN:]}"
            )
        if self.hit is None:
            last = self._process.last_lines()
            if _FENCED not in last:
                raise NodeEnded(f"node {self.node_id} ended by itself: {last[-_SHOWN:]}")
            # There was no fault, but the machine scheduled the process too rarely.
            self.hit = "a lease that was renewed too late"
        return self._start_again(self.hit)

    def _start_again(self, hit: str) -> str:
        said = f"node {self.node_id} is started again after {hit}"
        self._recovering = (hit, monotonic())
        if self.forgets:
            # A JVM that outlives its driver must not write to the deleted folder.
            self._process.kill()
            self._note_query()
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            self.forgets = False
            said += ", without its streaming checkpoint"
        if self.is_restored:
            said += self._restore()
        self._start()
        return said

    def _restore(self) -> str:
        """Copy the streaming checkpoint and its neighbouring files, or put the copy back."""
        self._process.kill()
        self._note_query()
        self.is_restored = False
        copy = self._checkpoint.with_name(f"{self._checkpoint.name}-copy")
        if copy.exists():
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            copy.rename(self._checkpoint)
            self.restored += 1
            return ", with an older copy of its streaming checkpoint"
        if self._checkpoint.exists():
            partial = copy.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(self._checkpoint, partial)
            partial.rename(copy)
        return ""

    def _note_query(self) -> None:
        """Remember the id of its query: the transaction identifier of all that it writes."""
        with suppress(OSError, msgspec.MsgspecError, KeyError):
            for metadata in self._checkpoint.glob("epoch-*/stream/metadata"):
                self.query_ids.add(msgspec.json.decode(metadata.read_bytes())["id"])

    # --- what can be done to it -------------------------------------------------------------------

    def kill_driver(self) -> bool:
        """Kill the driver's Python alone; its JVM finds out by itself."""
        return self._kill(self._process.pid, "a kill of its driver", must_end=True)

    def kill_jvm(self) -> bool:
        """Kill the JVM alone; False if it has none yet."""
        return self._kill(jvm_of(self._process.pid), "a kill of its JVM", must_end=True)

    def kill_worker(self, choice: int) -> bool:
        """Kill one Python worker alone, `choice` of all; False if there is none."""
        workers = workers_of(self._process.pid)
        chosen = workers[choice % len(workers)] if workers else None
        return self._kill(chosen, "a kill of a Python worker", must_end=False)

    def kill_node(self) -> bool:
        """Kill driver and JVM at once."""
        if self._process.has_ended():
            return False
        self.hit = "a kill"
        self._process.kill()
        return True

    def stop(self) -> bool:
        """Send SIGTERM; return False if it has ended."""
        if self._process.has_ended():
            return False
        self._ends_in_order = self.hit is None and self.is_ready()
        self.hit = _STOP
        self._is_doomed = True
        self._process.ask_to_stop()
        return True

    def pause(self, seconds: float) -> bool:
        """Pause the driver and the JVM for `seconds`; return False if it has ended."""
        if self._process.has_ended():
            return False
        self.hit = "a pause"
        with suppress(ProcessLookupError):
            self._process.pause()
        self._resume_at = monotonic() + seconds
        return True

    def _kill(self, pid: int | None, how: str, must_end: bool) -> bool:
        if pid is None or self._process.has_ended():
            return False
        self.hit = how
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self._hit_at = monotonic()
        self._is_doomed = self._is_doomed or must_end
        return True

    def kill(self) -> None:
        """End all that it has started; a JVM may have outlived its driver."""
        for process in self._processes:
            process.kill()


class Cluster:
    """All nodes of a root; a thread supervises them until `stop`.

    A thread must hold `lock` while it acts on a node.
    """

    def __init__(self, root: str, config: Path, logs: Path, count: int) -> None:
        self.nodes = [Node(root, config, logs, number + 1) for number in range(count)]
        self.lock = threading.RLock()
        self._said: list[tuple[float, str]] = []
        self._error: NodeEnded | None = None
        self._excuse: str | None = None
        self._stopping = threading.Event()
        self._thread = background.start("tending", self._tend, self._stopping.set)

    def _tend(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            try:
                with self.lock:
                    for node in self.nodes:
                        node.hit = self._excuse or node.hit
                        if (said := node.tend()) is not None:
                            self._said.append((monotonic(), said))
            except NodeEnded as error:
                self._error = error
                return

    def heard(self) -> list[tuple[float, str]]:
        """Return the supervisor's actions since the last call, with their times (`monotonic`)."""
        with self.lock:
            said, self._said = self._said, []
        return said

    def check(self) -> None:
        """Raise NodeEnded if a node ended to which nothing had been done."""
        if self._error is not None:
            raise self._error

    def settle(self) -> None:
        """Wait until all nodes are ready. Raises Failure after `READY_S`, and NodeEnded."""
        until = monotonic() + READY_S
        while True:
            self.check()
            with self.lock:
                late = [str(node.node_id) for node in self.nodes if not node.is_ready()]
            if not late:
                return
            if monotonic() > until:
                raise Failure(f"not ready after {READY_S:.0f} s: node {', '.join(late)}")
            sleep(_LOOK_S)

    @contextmanager
    def excusing(self, what: str) -> Iterator[None]:
        """Excuse the end of every node for the block, including nodes that start in it."""
        with self.lock:
            self._excuse = what
        try:
            yield
        finally:
            with self.lock:
                self._excuse = None
                for node in self.nodes:
                    node.hit = what

    def forgive(self) -> None:
        """Forget previous faults: only later ones excuse an end."""
        with self.lock:
            for node in self.nodes:
                node.hit = None

    def stop(self) -> None:
        """End the thread and every node."""
        self._stopping.set()
        self._thread.join()
        for node in self.nodes:
            node.kill()


@contextmanager
def running_cluster(root: str, config: Path, logs: Path, count: int) -> Iterator[Cluster]:
    """Start the nodes of a root, and end them after the block."""
    files = logs / "jvm"
    files.mkdir()
    use_short_lived_jvms(files)
    cluster = Cluster(root, config, logs, count)
    try:
        yield cluster
    finally:
        cluster.stop()
