"""Node processes, and the supervisor that restarts them.

A node's main thread runs as in `pipeline.node.job`. Its query, its lease, the writing of Delta
checkpoints and upkeep are actors of the same process.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.exceptions import DeltaError

from group_coordinator.coordinator.config import ConfigError
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node.coordinating import HandOver
from group_coordinator.pipeline.node.node import CoordinatorNode, start
from group_coordinator.pipeline.node.resumption import checkpoint_uri
from tests.trials.simulation.engine import SimulatedEngine
from tests.trials.simulation.world import Actor, Process

if TYPE_CHECKING:
    from group_coordinator.pipeline.background import Work
    from group_coordinator.pipeline.settings import Settings
    from tests.trials.simulation.checks import Observer
    from tests.trials.simulation.clocks import MachineClock
    from tests.trials.simulation.engine import StreamingCheckpoint
    from tests.trials.simulation.files import Files
    from tests.trials.simulation.world import World

# Errors that end a node with a message; any other error is a bug.
ENDINGS = (Failure, ConfigError, DeltaError, OSError, pa.ArrowException)
_TICK_MS = 100.0
_START_MS = 700.0


class ActorBackground:
    """Background work as actors of the process that began it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def repeat(self, name: str, interval_s: float, work: Work) -> RepeatingActor:
        """See `pipeline.background.Background`."""
        return RepeatingActor(self._world, self._actor(name), interval_s * 1000, work)

    def run(self, name: str, work: Work) -> bool:
        """See `pipeline.background.Background`."""
        self._world.later(1.0, self._actor(name), work)
        return True

    def _actor(self, name: str) -> Actor:
        current = self._world.current
        assert current is not None
        return Actor(current.process, name)


class RepeatingActor:
    """Work that an actor repeats."""

    def __init__(self, world: World, actor: Actor, interval_ms: float, work: Work) -> None:
        self._world = world
        self._actor = actor
        self._interval_ms = interval_ms
        self._work = work
        world.later(interval_ms, actor, self._step)

    def stop(self) -> None:
        """End the work."""
        self._actor.stopped = True

    def _step(self) -> None:
        self._work()
        self._world.later(self._interval_ms, self._actor, self._step)


class NodeHost:
    """A machine for one node number, and the supervisor that keeps its process running.

    `settings_of` returns the settings of the next start.
    """

    def __init__(
        self,
        world: World,
        files: Files,
        observer: Observer,
        checkpoints: dict[str, StreamingCheckpoint],
        root: str,
        node_id: int,
        clock: MachineClock,
        settings_of: Callable[[], Settings],
    ) -> None:
        self.node_id = node_id
        self.clock = clock
        self.node: CoordinatorNode | None = None
        self.process: Process | None = None
        self.wanted = True
        # Whether its streaming checkpoint is deleted before the next start.
        self.begins_afresh = False
        self._world = world
        self._files = files
        self._observer = observer
        self._checkpoints = checkpoints
        self._root = root
        self._settings_of = settings_of
        self._stopping = False
        # The copy of the streaming checkpoints, if there is one; their files are in the same
        # folder.
        self._copied: dict[str, StreamingCheckpoint] | None = None
        self._supervisor = Actor(Process(f"supervisor of node {node_id}", clock), "supervisor")
        self._chance = world.rng(f"node {node_id}")

    @property
    def name(self) -> str:
        """The name of its processes."""
        return f"node {self.node_id}"

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.process.alive

    def supervise(self) -> None:
        """Start the process, and start it again whenever it has ended."""
        self._world.later(0.0, self._supervisor, self._look)

    def _look(self) -> None:
        if self.wanted and not self.running:
            if self.begins_afresh:
                self.begins_afresh = False
                self._delete_checkpoints()
            self.start()
        self._world.later(self._chance.uniform(500, 1_500), self._supervisor, self._look)

    def start(self) -> None:
        """Start a process without checking for a running one."""
        process = Process(self.name, self.clock)
        self.process, self.node, self._stopping = process, None, False
        settings = self._settings_of()
        engine = SimulatedEngine(
            self._world,
            process,
            self._files,
            self._root,
            settings.coordinator,
            self._checkpoints,
            self._observer,
        )
        main = Actor(process, "main")
        self._world.count("starts")
        self._world.later(_START_MS, main, lambda: self._begin(main, engine, settings))

    def kill(self) -> None:
        """End the process at once."""
        if self.process is not None and self.process.alive:
            self._world.tell(f"{self.name} is killed")
            self._world.count("crashes")
            self.process.kill()

    def stop(self) -> None:
        """Ask the process to stop in order."""
        self._stopping = True

    def lose_checkpoint(self) -> None:
        """Kill the process, and delete its streaming checkpoint and the neighbouring files."""
        self.kill()
        self._world.tell(f"{self.name} loses its streaming checkpoint")
        self._world.count("streaming checkpoints lost")
        self._delete_checkpoints()

    def restore_checkpoint(self) -> None:
        """Kill the process, and copy its streaming checkpoint, or put the copy back if there is."""
        self.kill()
        folder = checkpoint_uri(self._root, self.node_id)
        copy = f"{folder}-copy"
        if self._copied is None:
            if Path(folder).exists():
                shutil.copytree(folder, copy)
                self._copied = deepcopy(self._own_checkpoints())
            return
        self._world.tell(f"{self.name} has an older copy of its streaming checkpoint")
        self._world.count("streaming checkpoints restored")
        self._delete_checkpoints()
        Path(copy).rename(folder)
        self._checkpoints.update(self._copied)
        self._copied = None

    def _own_checkpoints(self) -> dict[str, StreamingCheckpoint]:
        folder = checkpoint_uri(self._root, self.node_id)
        return {k: each for k, each in self._checkpoints.items() if k.startswith(f"{folder}/")}

    def _delete_checkpoints(self) -> None:
        for checkpoint in self._own_checkpoints():
            del self._checkpoints[checkpoint]
        shutil.rmtree(checkpoint_uri(self._root, self.node_id), ignore_errors=True)

    # --- the main thread --------------------------------------------------------------------------

    def _begin(self, main: Actor, engine: SimulatedEngine, settings: Settings) -> None:
        if self._files.away:
            # Operators start no node while a table is missing, because it would create the table.
            main.process.kill()
            return
        with self._guarded(main, None):
            node = start(engine, self._root, settings)
            self.node = node
            self._world.later(_TICK_MS, main, lambda: self._tick(main, node))

    def _tick(self, main: Actor, node: CoordinatorNode) -> None:
        with self._guarded(main, node):
            if self._stopping:
                timeout_ms = self._settings_of().coordinator.controlled_shutdown_timeout_ms
                self._end(main, node, HandOver(node, timeout_ms / 1000))
                return
            node.tick()
            self._world.later(_TICK_MS, main, lambda: self._tick(main, node))

    def _end(self, main: Actor, node: CoordinatorNode, handing_over: HandOver) -> None:
        """Stop as `pipeline.node.coordinating` does."""
        with self._guarded(main, node):
            if handing_over.advance():
                self._world.later(_TICK_MS, main, lambda: self._end(main, node, handing_over))
                return
            node.stop()
            node.abandon()
            self._world.tell("stopped in order")
            self._world.count("stops in order")
            main.process.kill()

    @contextmanager
    def _guarded(self, main: Actor, node: CoordinatorNode | None) -> Iterator[None]:
        """End the process as `pipeline.node.job` does, whatever ends its main thread."""
        try:
            yield
        except ENDINGS as error:
            self._world.tell(f"ended: {type(error).__name__}: {str(error).splitlines()[0]}")
            self._world.count(f"ends: {type(error).__name__}")
            if node is not None:
                node.abandon()
            main.process.kill()
