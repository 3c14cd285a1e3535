"""One run: a root in a folder, gateways and clients by a seed, until all work is done."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.pipeline import background, clock
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.acl_table import add_acls
from group_coordinator.pipeline.tables.store import ensure_tables
from group_coordinator.pipeline.topics import create_log_topic
from group_coordinator.schemas.acls import ANONYMOUS, CLUSTER_NAME, AclBinding
from group_coordinator.schemas.tables import ACLS, GATEWAYS, TOPIC_RECORDS
from tests.trials.gateways.calm import LONGEST_WAIT_MS, Calm
from tests.trials.gateways.connection import Client
from tests.trials.gateways.consumers import Consumer
from tests.trials.gateways.faults import RECORDS, draw_faults
from tests.trials.gateways.hosts import ADMIN, GatewayHost, installed
from tests.trials.gateways.ledger import INTRUDED, SPARED, Ledger
from tests.trials.gateways.log import RETENTION_MS, read_table
from tests.trials.gateways.loop import SimulatedLoop
from tests.trials.gateways.network import Network
from tests.trials.gateways.operators import (
    AclAdmin,
    Intruder,
    Operator,
    PartitionAdmin,
    TopicAdmin,
)
from tests.trials.gateways.producers import Producer
from tests.trials.gateways.promises import ANSWERED_SOON
from tests.trials.gateways.upkeep import TopicsUpkeep
from tests.trials.gateways.users_table import UsersTable
from tests.trials.simulation.clocks import MachineClock
from tests.trials.simulation.faults import KILL, SET_CLOCK, STOP, Fault
from tests.trials.simulation.files import Files
from tests.trials.simulation.nodes import ActorBackground
from tests.trials.simulation.recreated import AWAY, EMPTY, OLDER, Replacement, TableOperator
from tests.trials.simulation.runs import Outcome, folder_in_memory, outcome_of
from tests.trials.simulation.world import NO_BUG, Actor, Process, Violation, World
from tests.trials.simulation.world_clock import WorldClock

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.trials.gateways.acl_times import Key


_BEGIN_MS = 2_000.0
# The average time of a record, which gives the time over which faults are spread.
_MS_A_RECORD = 0.6
_POLL_MS = 100.0
# In addition to `SPARED`: a topic that is created again, one guarded by ACLs, and a user's table.
FLEETING = "fleeting"
GUARDED = "guarded"
USERS = "users"
TOPICS = (SPARED, FLEETING)
GROWING = "growing"
PRODUCED = (*TOPICS, GUARDED, GROWING, *RETENTION_MS)
MOST_PARTITIONS = 4
PARTITIONS = 3
WRITER, READER, INTRUDER = "10.0.2.1", "10.0.2.2", "10.0.3.1"


class Plan(Struct, frozen=True):
    """The parameters of a run, which writes at least `records` records.

    `faults` is the number of random faults; `script` is a fixed schedule instead. `without` omits
    faults of the schedule, by their numbers.
    """

    seed: int
    records: int = 100_000
    gateways: int = 2
    producers: int = 6
    consumers: int = 2
    faults: int = 40
    script: tuple[Fault, ...] = ()
    without: frozenset[int] = frozenset()


class _Log(logging.Handler):
    """A log handler that treats an unexpected error in the product's log as a bug."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        text = record.getMessage()
        self._world.tell(text)
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno >= logging.ERROR and not isinstance(error, Failure):
            self._world.violate(NO_BUG, f"{text}: {error!r}")


@contextmanager
def _logging(handler: logging.Handler) -> Iterator[None]:
    """Make a handler the only one of the product's log within the block."""
    logger = logging.getLogger("group_coordinator")
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


def host_of(number: int) -> str:
    """Return the host of a client with all permissions."""
    return f"10.0.1.{number}"


class Simulation:
    """A run of a plan in a separate folder."""

    def __init__(self, plan: Plan, root: Path) -> None:
        self.plan = plan
        self.world = World(plan.seed)
        self.ledger = Ledger(self.world, root)
        self.calm = Calm(self.world)
        self._root = root
        self._network = Network(self.world)
        self._files = Files(self.world, root, self.ledger.on_commit)
        self._hosts: list[GatewayHost] = []
        self._loops: list[SimulatedLoop] = []
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        self._admins: list[Operator] = []
        self._running = 0
        self._operator = Actor(Process("operator", MachineClock()), "operator")
        user = Actor(Process("user", MachineClock()), "user")
        clock_ = MachineClock(self.world.rng("machine of upkeep").randint(-300, 300))
        self._upkeeper = Actor(Process("upkeep", clock_), "upkeep")
        self._tables = TableOperator(
            self.world,
            self._files,
            root,
            self._operator,
            self._make,
            self._on_copied,
            self._on_replaced,
        )
        # The ACLs of clients with all permissions, and those in a copy that is to be put back.
        self._everything: list[AclBinding] = []
        self._copied: dict[Key, bool] = {}
        self._upkeep = TopicsUpkeep(self.world, self._files, self._upkeeper, str(root))
        self._users = UsersTable(self.world, self._files, self.ledger, user, root, USERS)

    def run(self) -> None:
        """Run all of it; the world has the violation, if there is one."""
        with self._installed():
            try:
                ensure_tables(str(self._root))
                self.world.later(0.0, self._operator, self._prepare)
                self.world.later(0.0, self._operator, self._users.begin)
                self.world.run_until(1_000.0)
                self._begin()
                self._work()
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
                stack.enter_context(self._upkeep.installed())
                stack.enter_context(installed(self.world, self._network, world_clock))
                stack.enter_context(_logging(_Log(self.world)))
                yield
        finally:
            random.setstate(chance)

    def _prepare(self) -> None:
        """Make the topic, and the ACLs of whom no change of ACLs concerns."""
        root = str(self._root)
        for topic in (SPARED, GUARDED):
            create_log_topic(root, topic, PARTITIONS)
        create_log_topic(root, GROWING, 1)
        for topic, retention_ms in RETENTION_MS.items():
            create_log_topic(root, topic, PARTITIONS, {"retention.ms": str(retention_ms)})
        hosts = [host_of(number) for number in range(self.plan.producers)]
        hosts += [host_of(100 + number) for number in range(self.plan.consumers)]
        everything = ("TOPIC", "*", "LITERAL", ANONYMOUS)
        acls = [AclBinding(*everything, host, "ALL", "ALLOW") for host in [*hosts, ADMIN]]
        acls.append(
            AclBinding("CLUSTER", CLUSTER_NAME, "LITERAL", ANONYMOUS, ADMIN, "ALL", "ALLOW")
        )
        self._everything = acls
        add_acls(root, acls)

    def _begin(self) -> None:
        chance = self.world.rng("machines")
        for number in range(1, self.plan.gateways + 1):
            machine = MachineClock(chance.randint(-60_000, 60_000), chance.uniform(-1e-3, 1e-3))
            host = GatewayHost(self.world, self._network, str(self._root), number, machine)
            self._hosts.append(host)
            host.supervise()
        for fault in self.schedule():
            self.world.later(
                fault.at - self.world.now, self._operator, partial(self._inflict, fault)
            )
        for number in range(self.plan.producers):
            topic = TOPICS[number % len(TOPICS)]
            self._produce(f"producer-{number}", host_of(number), topic, number)
        for topic in (*TOPICS, USERS):
            for number in range(self.plan.consumers):
                self._consume(f"{topic}-consumer-{number}", host_of(100 + number), topic)
        self._produce("guarded-0", WRITER, GUARDED, 0)
        self._produce("guarded-2", WRITER, GUARDED, 2)
        self._consume("guarded-consumer", READER, GUARDED)
        self._consume("users-rereader", host_of(100), USERS, rereads=True)
        for number in range(MOST_PARTITIONS):
            # Refused until the topic has the partition.
            self._produce(f"growing-{number}", host_of(0), GROWING, number)
        self._consume("growing-consumer", host_of(100), GROWING, partitions=1)
        for topic in RETENTION_MS:
            # Records of an idempotent producer are kept as long as it may resend them.
            for number in (0, 2):
                self._produce(f"{topic}-{number}", host_of(0), topic, number, skew_ms=300)
            self._consume(f"{topic}-rereader", host_of(100), topic, rereads=True)
        self.world.later(0.0, self._upkeeper, self._upkeep.step)
        client = self._client("partition-admin", ADMIN)
        self._administer(PartitionAdmin(client, self.ledger, GROWING, MOST_PARTITIONS, 4.0))
        client = self._client("topic-admin", ADMIN)
        self._administer(TopicAdmin(client, self.ledger, FLEETING, PARTITIONS, 4.0))
        client = self._client("acl-admin", ADMIN)
        users = [(WRITER, "WRITE"), (READER, "READ")]
        self._administer(AclAdmin(client, self.ledger, GUARDED, users, 6.0))
        self._administer(Intruder(self._client("intruder", INTRUDER), SPARED, INTRUDED))

    def _produce(
        self, name: str, host: str, topic: str, number: int, skew_ms: int = 60_000
    ) -> None:
        client = self._client(name, host)
        partition = number if topic == GROWING else number % PARTITIONS
        producer = Producer(client, self.ledger, topic, partition, number % 3 != 2)
        self._producers.append(producer)
        self._run(name, producer.run(), skew_ms)

    def _consume(
        self,
        name: str,
        host: str,
        topic: str,
        partitions: int = PARTITIONS,
        rereads: bool = False,
    ) -> None:
        client = self._client(name, host)
        consumer = Consumer(client, self.ledger, topic, partitions, rereads)
        self._consumers.append(consumer)
        self._run(name, consumer.run())

    def _administer(self, admin: Operator) -> None:
        self._admins.append(admin)
        self._run(admin.client.name, admin.run())

    def _work(self) -> None:
        last = max((fault.until for fault in self.schedule()), default=0.0)
        while (
            self.world.counts.get("records", 0) < self.plan.records
            or self.world.now < last
            or self._tables.is_busy
        ):
            self.world.run_until(self.world.now + _POLL_MS)

    def schedule(self) -> list[Fault]:
        """Return the faults of the run."""
        drawn = list(self.plan.script) or draw_faults(
            self.world.rng("faults"),
            self.plan.faults,
            _BEGIN_MS,
            _BEGIN_MS + self.plan.records * _MS_A_RECORD,
            self.plan.gateways,
        )
        return [fault for number, fault in enumerate(drawn) if number not in self.plan.without]

    def _inflict(self, fault: Fault) -> None:
        self.world.tell(f"FAULT {fault.line().strip()}")
        self.world.count("faults")
        host = self._hosts[fault.node_id - 1]
        if fault.commit is not None:
            table = fault.commit.table
            if table == RECORDS:
                logs = self.ledger.logs[PRODUCED[fault.number % len(PRODUCED)]]
                table = logs[-1].table
            self._files.faults.append(replace(fault.commit, table=table))
        elif fault.reads is not None:
            self._files.troubles.add(fault.reads)
        elif fault.replaced is not None:
            self._tables.replace(self._located(fault.replaced))
        elif fault.halts:
            for halt in fault.halts:
                self._files.troubles.add(halt)
        elif fault.kind == KILL:
            host.kill()
        elif fault.kind == STOP:
            host.stop()
        elif fault.kind == SET_CLOCK:
            host.clock.set_by(fault.ms)

    # --- tables that are replaced -----------------------------------------------------------------

    def _located(self, replacement: Replacement) -> Replacement:
        """Return the replacement with the folder of a topic's table.

        A topic whose table was created again stays unavailable until the topic is created again.
        """
        if replacement.table != RECORDS:
            return replacement
        logs = self.ledger.logs.get(FLEETING if replacement.how == EMPTY else SPARED)
        table = logs[-1].table if logs else "not created yet"
        return replace(replacement, folder=f"{TOPIC_RECORDS.name}/{table}")

    def _make(self, replacement: Replacement) -> None:
        """Create a table again; that of the ACLs as the product advises, by adding ACLs."""
        root = str(self._root)
        if replacement.table == ACLS.name:
            add_acls(root, self._everything, anew=True)
        elif replacement.table == RECORDS:
            deltalake.DeltaTable.create(
                f"{root}/{replacement.folder}",
                TOPIC_RECORDS.schema,
                partition_by=list(TOPIC_RECORDS.partition_by),
            )
        else:
            ensure_tables(root, [GATEWAYS])

    def _on_copied(self, replacement: Replacement) -> None:
        if replacement.table == RECORDS and replacement.how == EMPTY:
            self.ledger.log_of(Path(replacement.folder).name).is_replaced = True
        if replacement.table == ACLS.name:
            self._copied = self.ledger.acls.present()
            if replacement.how != OLDER:
                self.ledger.acls.unknown()
            if replacement.how == EMPTY:
                self.ledger.acls.replaced({})

    def _on_replaced(self, replacement: Replacement, was_made: bool) -> None:
        if replacement.table == ACLS.name:
            self.ledger.acls.known()
            if replacement.how == OLDER or was_made:
                self.ledger.acls.replaced(self._copied)
        if replacement.table == GATEWAYS.name and (replacement.how != AWAY or was_made):
            # As the message in the gateway's log advises.
            for host in self._hosts:
                host.stop()

    # --- clients ----------------------------------------------------------------------------------

    def _client(self, name: str, host: str) -> Client:
        ports = [each.port for each in self._hosts]
        return Client(self.world, self._network, self.calm, name, host, ports)

    def _run(self, name: str, work: Coroutine[object, object, None], skew_ms: int = 60_000) -> None:
        """Run a client in a separate process, with a clock that is wrong by at most `skew_ms`."""
        chance = self.world.rng(f"machine of {name}")
        process = Process(name, MachineClock(chance.randint(-skew_ms, skew_ms)))
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
        self.calm.begin([host.process for host in self._hosts])
        self._users.is_quiet = self._upkeep.is_quiet = True
        for admin in self._admins:
            admin.is_quiet = True
        self._wait_for(lambda: self._running == len(self._producers) + len(self._consumers))
        for producer in self._producers:
            producer.is_quiet = True
        self._wait_for(lambda: all(not each.unfinished for each in self._producers))
        for consumer in self._consumers:
            consumer.is_quiet = True
        self._wait_for(lambda: not self._running)

    def _wait_for(self, is_done: Callable[[], bool]) -> None:
        limit = max(self.world.now, self.calm.since) + LONGEST_WAIT_MS
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
        for topic in PRODUCED:
            for log in self.ledger.logs[topic]:
                if not log.is_replaced:
                    self.ledger.check_table(log, read_table(self._root, log))


def simulate(plan: Plan) -> Outcome:
    """Run a plan in a new folder, which is deleted."""
    began = time.perf_counter()
    with folder_in_memory() as folder:
        simulation = Simulation(plan, folder)
        simulation.run()
    seconds = time.perf_counter() - began
    return outcome_of(
        plan, simulation.world, simulation.schedule(), seconds, simulation.calm.longest_ms
    )
