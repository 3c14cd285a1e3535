"""One run: a root in a folder, gateways and their clients by a seed, until all is quiet again."""

from __future__ import annotations

import logging
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
from msgspec import Struct

from group_coordinator.pipeline import background, clock
from group_coordinator.pipeline.tables.acls import add_acls
from group_coordinator.pipeline.tables.store import ensure_tables
from group_coordinator.pipeline.topics import create_log_topic
from group_coordinator.schemas.acls import ANONYMOUS, CLUSTER_NAME, AclBinding
from tests.trials.gateways.connection import Client
from tests.trials.gateways.consumers import Consumer
from tests.trials.gateways.hosts import ADMIN, GatewayHost, installed
from tests.trials.gateways.ledger import Ledger
from tests.trials.gateways.loop import SimulatedLoop
from tests.trials.gateways.network import Network
from tests.trials.gateways.producers import Producer
from tests.trials.gateways.promises import ANSWERED_SOON
from tests.trials.simulation.clocks import MachineClock
from tests.trials.simulation.files import Files
from tests.trials.simulation.nodes import ActorBackground
from tests.trials.simulation.simulation import _memory_folder
from tests.trials.simulation.world import NO_BUG, Actor, Broken, Process, Violation, World
from tests.trials.simulation.world_clock import WorldClock

if TYPE_CHECKING:
    from collections.abc import Coroutine


# So long may all that is asked take once the last fault has ended, ms.
LONGEST_WAIT_MS = 30_000.0
_POLL_MS = 100.0
TOPIC = "orders"
PARTITIONS = 3


class Plan(Struct, frozen=True):
    """What a run is made of: `records` are written at least."""

    seed: int
    records: int = 10_000
    gateways: int = 1
    producers: int = 3
    consumers: int = 1


class Outcome(Struct, frozen=True):
    """What came of a run. `broken` null: every promise was kept."""

    plan: Plan
    broken: Broken | None
    digest: str
    counts: dict[str, int]
    checks: dict[str, int]
    story: list[str]
    simulated_s: float
    seconds: float


class _Log(logging.Handler):
    """What the code under test logs: an error is a bug, whether it goes on or not."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        text = record.getMessage()
        self._world.tell(text)
        if record.levelno >= logging.ERROR:
            error = record.exc_info[1] if record.exc_info else None
            self._world.violate(NO_BUG, f"{text}: {error!r}")


@contextmanager
def _logging(handler: logging.Handler) -> Iterator[None]:
    """Have a handler alone hear what the code under test logs."""
    logger = logging.getLogger("group_coordinator")
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


class Simulation:
    """One run of a plan in a folder of its own."""

    def __init__(self, plan: Plan, root: Path) -> None:
        self.plan = plan
        self.world = World(plan.seed)
        self.ledger = Ledger(self.world)
        self._root = root
        self._network = Network(self.world)
        self._files = Files(self.world, root, self.ledger.on_commit)
        self._hosts: list[GatewayHost] = []
        self._loops: list[SimulatedLoop] = []
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        self._running = 0
        self._operator = Actor(Process("operator", MachineClock()), "operator")

    def run(self) -> None:
        """Run all of it; the world has the violation, if there is one."""
        with self._installed():
            try:
                ensure_tables(str(self._root))
                self.world.later(0.0, self._operator, self._prepare)
                self.world.run_until(1_000.0)
                self._begin()
                while self.world.counts.get("records", 0) < self.plan.records:
                    self.world.run_until(self.world.now + _POLL_MS)
                self._quieten()
                with self._files.ours():
                    self._check_tables()
            except Violation:
                return
            finally:
                self.world.close()
                for loop in (*self._loops, *(each for host in self._hosts for each in host.loops)):
                    loop.close()

    @contextmanager
    def _installed(self) -> Iterator[None]:
        world_clock = WorldClock(self.world)
        chance = random.getstate()
        random.seed(self.plan.seed)
        try:
            with ExitStack() as stack:
                stack.enter_context(clock.use(world_clock))
                stack.enter_context(background.use(ActorBackground(self.world)))
                stack.enter_context(self._files.installed())
                stack.enter_context(installed(self._network, world_clock))
                stack.enter_context(_logging(_Log(self.world)))
                yield
        finally:
            random.setstate(chance)

    def _prepare(self) -> None:
        """Make the topic, and the ACLs of whom no change of ACLs concerns."""
        root = str(self._root)
        create_log_topic(root, TOPIC, PARTITIONS)
        hosts = [self._host_of(number) for number in range(self.plan.producers)]
        hosts += [self._host_of(100 + number) for number in range(self.plan.consumers)]
        everything = ("TOPIC", "*", "LITERAL", ANONYMOUS)
        acls = [AclBinding(*everything, host, "ALL", "ALLOW") for host in [*hosts, ADMIN]]
        acls.append(
            AclBinding("CLUSTER", CLUSTER_NAME, "LITERAL", ANONYMOUS, ADMIN, "ALL", "ALLOW")
        )
        add_acls(root, acls)

    def _begin(self) -> None:
        chance = self.world.rng("machines")
        for number in range(1, self.plan.gateways + 1):
            machine = MachineClock(chance.randint(-60_000, 60_000), chance.uniform(-1e-3, 1e-3))
            host = GatewayHost(self.world, self._network, str(self._root), number, machine)
            self._hosts.append(host)
            host.supervise()
        for number in range(self.plan.producers):
            client = self._client(f"producer-{number}", self._host_of(number))
            producer = Producer(client, self.ledger, TOPIC, number % PARTITIONS, number % 3 != 2)
            self._producers.append(producer)
            self._run(client.name, producer.run())
        for number in range(self.plan.consumers):
            client = self._client(f"consumer-{number}", self._host_of(100 + number))
            consumer = Consumer(client, self.ledger, TOPIC, PARTITIONS)
            self._consumers.append(consumer)
            self._run(client.name, consumer.run())

    @staticmethod
    def _host_of(number: int) -> str:
        return f"10.0.1.{number}"

    def _client(self, name: str, host: str) -> Client:
        ports = [each.port for each in self._hosts]
        return Client(self.world, self._network, name, host, ports)

    def _run(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Run a client in a process of its own."""
        chance = self.world.rng(f"machine of {name}")
        process = Process(name, MachineClock(chance.randint(-60_000, 60_000)))
        loop = SimulatedLoop(self.world, process, chance)
        self._loops.append(loop)
        self._running += 1

        async def all_of_it() -> None:
            await work
            self._running -= 1

        loop.post(0.0, partial(loop.create_task, all_of_it()))

    def _quieten(self) -> None:
        """Begin nothing new, and wait until everything is answered, written and read."""
        self.world.tell("all is to be quiet")
        self._files.faults.clear()
        self._files.troubles.clear()
        for producer in self._producers:
            producer.is_quiet = True
        self._wait_for(lambda: all(not each.unfinished for each in self._producers))
        for consumer in self._consumers:
            consumer.is_quiet = True
        self._wait_for(lambda: not self._running)

    def _wait_for(self, is_done: object) -> None:
        assert callable(is_done)
        limit = self.world.now + LONGEST_WAIT_MS
        while not is_done():
            if self.world.now > limit:
                unfinished = [each.client.name for each in self._producers if each.unfinished]
                behind = [each.client.name for each in self._consumers if not each.has_read_all()]
                self.world.violate(
                    ANSWERED_SOON,
                    f"{LONGEST_WAIT_MS / 1000:.0f} s after the last fault {unfinished} have not "
                    f"written and {behind} not read all",
                )
            self.world.run_until(self.world.now + _POLL_MS)

    def _check_tables(self) -> None:
        """Read the tables by other code than the product's."""
        for logs in self.ledger.logs.values():
            for log in logs:
                uri = self._root / "topic_records" / log.table
                table = deltalake.DeltaTable(str(uri)).to_pyarrow_table(
                    columns=["partition", "offset", "value"]
                )
                self.ledger.check_table(log, table)


def simulate(plan: Plan) -> Outcome:
    """Run a plan in a new folder, which is deleted."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="simulation-", dir=_memory_folder()) as folder:
        simulation = Simulation(plan, Path(folder))
        simulation.run()
    world = simulation.world
    return Outcome(
        plan=plan,
        broken=world.broken,
        digest=world.digest,
        counts=world.counts,
        checks=world.checks,
        story=world.story,
        simulated_s=world.now / 1000,
        seconds=time.perf_counter() - began,
    )
