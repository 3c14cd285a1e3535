"""Machines with a gateway each, and the supervisor that restarts gateways."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway import brokers, connection, server, topic_logs
from group_coordinator.pipeline.gateway.server import running_gateway
from group_coordinator.pipeline.gateway_settings import Endpoint, GatewaySettings, Listener
from group_coordinator.pipeline.topics import TableTopics
from tests.trials.gateways.loop import SimulatedLoop
from tests.trials.simulation.files import replaced
from tests.trials.simulation.nodes import ENDINGS
from tests.trials.simulation.world import Actor, Lock, Process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.trials.gateways.network import Network
    from tests.trials.simulation.clocks import MachineClock
    from tests.trials.simulation.world import World
    from tests.trials.simulation.world_clock import WorldClock

FIRST_PORT = 9092
# The host of clients with all permissions.
ADMIN = "10.0.0.1"
_START_MS = 300.0
# The cache holds few rows, so records are soon read from their file again, which may be removed.
_CACHE_BYTES = 2_000


class _NoCoordinators:
    """A replacement of the client of coordinators, which is never used."""

    signs = False

    def __init__(self, *_: object) -> None:
        self.clocks = None

    def __enter__(self) -> _NoCoordinators:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to end."""


@contextmanager
def installed(world: World, network: Network, world_clock: WorldClock) -> Iterator[None]:
    """Replace sockets, clocks and locks by the world's within the block."""
    with ExitStack() as stack:
        stack.enter_context(replaced(server, "bind", network.bind))
        stack.enter_context(replaced(server, "RequestClient", _NoCoordinators))
        locks = SimpleNamespace(Lock=partial(Lock, world))
        stack.enter_context(replaced(brokers, "threading", locks))
        small = partial(TableTopics, cache_bytes=_CACHE_BYTES)
        stack.enter_context(replaced(topic_logs, "TableTopics", small))
        for module in (clock, server, connection):
            stack.enter_context(replaced(module, "time", world_clock))
        yield


class GatewayHost:
    """A machine with one gateway, and the supervisor that keeps its process running."""

    def __init__(
        self, world: World, network: Network, root: str, number: int, machine: MachineClock
    ) -> None:
        self.name = f"gateway {number}"
        self.port = FIRST_PORT + number
        self.clock = machine
        self.process: Process | None = None
        self.loops: list[SimulatedLoop] = []
        self.is_serving = False
        self._world = world
        self._network = network
        self._root = root
        self._chance = world.rng(self.name)
        self._stop: asyncio.Event | None = None
        self._supervisor = Actor(Process(f"supervisor of {self.name}", machine), "supervisor")

    def supervise(self) -> None:
        """Start the process, and start it again whenever it has ended."""
        process = self.process
        if process is not None and not process.alive:
            self._network.reset(process)
            self.is_serving, self.process = False, None
        elif process is None:
            self._start()
        self._world.later(self._chance.uniform(50, 400), self._supervisor, self.supervise)

    def kill(self) -> None:
        """End the process at once."""
        if self.process is not None and self.process.alive:
            self._world.tell(f"{self.name} is killed")
            self._world.count("crashes")
            self.process.kill()

    def stop(self) -> None:
        """Ask the process to stop in order."""
        if self._stop is not None and self.loops[-1].actor.alive:
            self.loops[-1].post(0.0, self._stop.set)

    def _start(self) -> None:
        self.process = Process(self.name, self.clock)
        self._world.count("starts")
        loop = SimulatedLoop(self._world, self.process, self._chance)
        self.loops.append(loop)
        loop.post(_START_MS, lambda: loop.create_task(self._serve(loop)))

    async def _serve(self, loop: SimulatedLoop) -> None:
        listener = Listener("PLAINTEXT", "PLAINTEXT", Endpoint("here", self.port))
        settings: Any = GatewaySettings(produce_linger_ms=5)
        group = GroupCoordinatorConfig(super_users="User:admin")
        self._stop = stop = asyncio.Event()
        try:
            async with running_gateway(self._root, [listener], settings, group):
                self.is_serving = True
                self._world.tell("serves")
                await stop.wait()
            self._world.tell("stopped in order")
            self._world.count("stops in order")
        except (*ENDINGS, Failure) as error:
            self._world.tell(f"ended: {type(error).__name__}: {str(error).splitlines()[0]}")
            self._world.count(f"ends: {type(error).__name__}")
        loop.actor.process.kill()
