"""One run: a root in a folder, nodes, clients and faults by a seed, until all work is done."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.pipeline import background, clock
from group_coordinator.pipeline.delta import log_trim, writer
from group_coordinator.pipeline.delta.appender import Epoch, FencedError
from group_coordinator.pipeline.delta.commit import Changes
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.node import query
from group_coordinator.pipeline.node.bootstrap import append_claims
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.ownership.partitions import move
from group_coordinator.pipeline.settings import CoordinatorSettings, Settings
from group_coordinator.pipeline.stream import stateful
from group_coordinator.pipeline.tables.store import ensure_tables
from group_coordinator.pipeline.tables.topic_catalogue import (
    alter_topic,
    create_topic,
    delete_topic,
    has_catalogue,
)
from group_coordinator.schemas.messages import OffsetFetchRequest, RequestEvent
from group_coordinator.schemas.tables import REQUESTS, RESPONSES, TOPICS
from tests.support.topics import read_counts
from tests.trials.simulation import faults
from tests.trials.simulation.checks import LONGEST_WAIT_MS, Observer
from tests.trials.simulation.clients import (
    ClientProcess,
    ForeignProcess,
    SlowReader,
)
from tests.trials.simulation.clocks import MachineClock
from tests.trials.simulation.consumers import Assignments, ConsumerMember
from tests.trials.simulation.faults import Fault, draw_faults
from tests.trials.simulation.files import (
    CRASH_BEFORE,
    CommitFault,
    Files,
    replaced,
)
from tests.trials.simulation.groups_log import Key
from tests.trials.simulation.nodes import ENDINGS, ActorBackground, NodeHost
from tests.trials.simulation.promises import ANSWERED_SOON, REPLACED
from tests.trials.simulation.recreated import (
    AWAY,
    EMPTY,
    NOTICED_MS,
    OLDER,
    Replacement,
    TableOperator,
)
from tests.trials.simulation.runs import Outcome, folder_in_memory, outcome_of
from tests.trials.simulation.upkeep import HORIZON_MS, Upkeep
from tests.trials.simulation.workload import (
    TOPIC,
    TOPIC_PARTITIONS,
    Admin,
    Committer,
    Junk,
    Member,
    Offsets,
    Repeater,
)
from tests.trials.simulation.world import (
    Actor,
    Process,
    Violation,
    World,
)
from tests.trials.simulation.world_clock import WorldClock

if TYPE_CHECKING:
    from group_coordinator.schemas.messages import Response
    from tests.trials.simulation.engine import StreamingCheckpoint

PARTITIONS = 8
CLIENTS = 4
LEASE_MS = 1_000
# So long do the requests of a run take on the average: faults are spread over the time of all.
_MS_AN_EVENT = 1.1
_POLL_MS = 500.0
_REPLACED = {table.name: table for table in (REQUESTS, TOPICS)}
# The time for which a new catalogue has no topic, ms.
_MAKING_TOPICS_MS = 700.0


class Plan(Struct, frozen=True):
    """The parameters of a run.

    `pace` multiplies the commits of simple consumers and the repeater: more requests in the same
    time give larger batches. `faults` is the number of random faults, and `kinds` their kinds, all
    if empty; `script` is a fixed schedule instead. `without` omits faults of the schedule, by their
    numbers.
    """

    seed: int
    events: int = 25_000
    pace: int = 1
    nodes: int = 3
    faults: int = 36
    kinds: frozenset[str] = frozenset()
    script: tuple[Fault, ...] = ()
    without: frozenset[int] = frozenset()


class Simulation:
    """A run of a plan in a separate folder."""

    def __init__(self, plan: Plan, root: Path) -> None:
        self.plan = plan
        self.world = World(plan.seed)
        self._root = root
        self._offsets = Offsets()
        self._assignments = Assignments()
        self._clients: list[ClientProcess] = []
        self.observer = Observer(self.world, PARTITIONS, self._deliver)
        self._files = Files(self.world, root, self.observer.on_commit)
        self._checkpoints: dict[str, StreamingCheckpoint] = {}
        self._upkeep = Upkeep(self.world, self._files, str(root))
        self._retuned = 0
        self._reader: SlowReader | None = None
        self._hosts: list[NodeHost] = []
        self._operator = Actor(Process("operator", MachineClock()), "operator")
        self._tables = TableOperator(
            self.world,
            self._files,
            root,
            self._operator,
            lambda replacement: ensure_tables(str(root), [_REPLACED[replacement.table]]),
            self._on_copied,
            self._on_replaced,
        )
        # The requests that the copy of their table has, which is to be put back.
        self._copied: frozenset[str] = frozenset()

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Run all of it; the world has the violation, if there is one."""
        with self._installed():
            try:
                ensure_tables(str(self._root))
                self._begin()
                self._work()
                self._quieten()
                self._ask_for_all()
                self._begin_again_without_checkpoints()
                self._ask_for_all()
                with self._files.ours():
                    self._check_tables()
            except Violation:
                return
            finally:
                self.world.close()

    @contextmanager
    def _installed(self) -> Iterator[None]:
        world_clock = WorldClock(self.world)
        actors = ActorBackground(self.world)
        chance = random.getstate()
        random.seed(self.plan.seed)
        check_epoch, are_forbidden = Epoch.check, writer.are_forbidden

        def checked(changes: Changes, versions: Mapping[str, int | None]) -> bool:
            if changes.bounds:
                self.world.count("epoch checks")
            return are_forbidden(changes, versions)

        def refused(epoch: Epoch, table: str, latest: int | None) -> None:
            try:
                check_epoch(epoch, table, latest)
            except FencedError:
                self.world.count("epochs refused")
                raise

        try:
            with ExitStack() as stack:
                stack.enter_context(clock.use(world_clock))
                stack.enter_context(background.use(actors))
                # Collections take longer with each run of the process, because of the objects of
                # earlier runs.
                stack.enter_context(replaced(stateful, "gc", _NoCollection()))
                stack.enter_context(replaced(writer, "are_forbidden", checked))
                stack.enter_context(replaced(Epoch, "check", refused))
                stack.enter_context(self._files.installed())
                stack.enter_context(self._upkeep.installed())
                stack.enter_context(replaced(writer, "CHECKPOINT_EVERY", 25))
                stack.enter_context(replaced(query, "append_claims", self._write_slowly()))
                # Ages of files are the real store's: a run that took long would be another run.
                stack.enter_context(replaced(log_trim, "GRACE_S", 0.0))
                yield
        finally:
            random.setstate(chance)

    def _write_slowly(self) -> Callable[..., int]:
        """Return a slow writer of a running query's bootstrap; other actors continue meanwhile."""
        chance = self.world.rng("bootstraps")

        def write_slowly(*arguments: Any) -> int:
            self.world.sleep(chance.uniform(0.0, 1.5))
            return append_claims(*arguments)

        return write_slowly

    def _begin(self) -> None:
        chance = self.world.rng("machines")
        for node_id in range(1, self.plan.nodes + 1):
            machine = MachineClock(chance.randint(-60_000, 60_000), chance.uniform(-1e-3, 1e-3))
            host = NodeHost(
                self.world,
                self._files,
                self.observer,
                self._checkpoints,
                str(self._root),
                node_id,
                machine,
                partial(self._settings, node_id),
            )
            self._hosts.append(host)
            delay = 0.0 if node_id == 1 else chance.uniform(0, 8_000)
            self.world.later(delay, self._operator, host.supervise)
        self._begin_clients(chance)
        for fault in self.schedule():
            self.world.later(fault.at, self._operator, partial(self._inflict, fault))

    def schedule(self) -> list[Fault]:
        """Return the faults of the run."""
        drawn = list(self.plan.script) or draw_faults(
            self.world.rng("faults"),
            self.plan.faults,
            self.plan.kinds,
            4_000.0,
            4_000.0 + self.plan.events * _MS_AN_EVENT / self.plan.pace,
            self.plan.nodes,
            PARTITIONS,
            CLIENTS,
        )
        return [fault for number, fault in enumerate(drawn) if number not in self.plan.without]

    def _settings(self, node_id: int) -> Settings:
        ours = CoordinatorSettings(
            node_id=node_id,
            lease_ms=LEASE_MS,
            segment_bytes=200_000,
            segment_ms=20_000,
        )
        group = GroupCoordinatorConfig(
            offsets_topic_num_partitions=PARTITIONS,
            group_min_session_timeout_ms=1_000,
            group_initial_rebalance_delay_ms=300,
            group_max_size=100 if self._retuned % 2 == 0 else 2,
            offset_metadata_max_bytes=4096 if self._retuned % 2 == 0 else 0,
        )
        return Settings(coordinator=ours, group=group)

    def _begin_clients(self, chance: Random) -> None:
        reader = Process("slow reader", MachineClock())
        self._reader = SlowReader(self.world, reader, str(self._root), HORIZON_MS / 2)
        for number in range(CLIENTS):
            machine = MachineClock(chance.randint(-60_000, 60_000))
            kind = ForeignProcess if number == CLIENTS - 1 else ClientProcess
            home = kind(
                self.world,
                Process(f"clients {number}", machine),
                str(self._root),
                self.observer,
                chance.uniform(150, 500),
                chance.choice((5.0, 50.0, 800.0)),
            )
            self._clients.append(home)
            self._fill(number, home)

    def _fill(self, number: int, home: ClientProcess) -> None:
        offsets = self._offsets
        for group in range(12):
            for _ in range(1 + (group + number) % 3):
                Member(home, f"members-{group}", offsets, 3_000)
        Member(home, "static", offsets, 4_000, f"instance-{number}")
        for group in range(number, 24, CLIENTS):
            for _ in range(5):
                Committer(home, f"commits-{group}", offsets, 220 / self.plan.pace)
        Admin(home, f"commits-{number}", offsets, 2_000)
        Admin(home, f"members-{number}", offsets, 2_000)
        Junk(home, f"members-{number}", offsets, 1_500)
        for strategy in ("range", "cooperative-sticky"):
            ConsumerMember(home, f"consumers-{strategy}", offsets, self._assignments, strategy)
        if isinstance(home, ForeignProcess):
            Repeater(home, "repeats", offsets, 400, 80 * self.plan.pace, 30_000)

    def _deliver(self, response: Response) -> None:
        for home in self._clients:
            home.deliver(response)

    def _work(self) -> None:
        last = max((fault.until for fault in self.schedule()), default=0.0)
        while self.world.counts.get("requests", 0) < self.plan.events or self.world.now < last:
            self.world.run_until(self.world.now + _POLL_MS)

    # --- faults -----------------------------------------------------------------------------------

    def _inflict(self, fault: Fault) -> None:
        self.world.tell(f"FAULT {fault.line().strip()}")
        self.world.count("faults")
        host = self._hosts[fault.node_id - 1] if fault.node_id else None
        if fault.kind == faults.ZOMBIE:
            self._outlive_lease(fault)
        elif fault.commit is not None:
            self._files.faults.append(fault.commit)
        elif fault.reads is not None:
            self._files.troubles.add(fault.reads)
        elif fault.halts:
            for halt in fault.halts:
                self._files.troubles.add(halt)
        elif fault.replaced is not None:
            self._tables.replace(fault.replaced)
        elif fault.kind == faults.SILENCE:
            self._clients[fault.number].process.kill()
        elif fault.kind == faults.RETUNE:
            self._retuned += 1
            # The batch is run again with other settings than those with which it wrote records.
            cut_off = CommitFault(f"node {fault.node_id}", RESPONSES.name, CRASH_BEFORE)
            self._files.faults.append(cut_off)
        elif fault.kind == faults.COMPACT:
            self._upkeep.compact()
        elif fault.kind == faults.RETAIN:
            self._upkeep.retain()
        elif fault.kind == faults.TOPICS:
            self._change_topics(fault.number)
        elif host is not None:
            self._inflict_on(host, fault)

    def _outlive_lease(self, fault: Fault) -> None:
        """Pause an owner's next batch for longer than a lease."""
        assert fault.commit is not None
        owners = {state.owner for state in self.observer.cluster.partitions.values()}
        hosts = [host for host in self._hosts if host.running and host.node_id in owners]
        if hosts:
            host = hosts[fault.number % len(hosts)]
            self._files.faults.append(replace(fault.commit, process=host.name))

    def _inflict_on(self, host: NodeHost, fault: Fault) -> None:
        if fault.kind == faults.KILL:
            host.kill()
        elif fault.kind == faults.LOSE_CHECKPOINT:
            host.lose_checkpoint()
        elif fault.kind == faults.RESTORE_CHECKPOINT:
            host.restore_checkpoint()
        elif fault.kind == faults.SET_CLOCK:
            host.clock.set_by(fault.ms)
        elif fault.kind == faults.STOP:
            host.stop()
        elif fault.kind == faults.TWIN:
            host.start()
        elif fault.kind == faults.MOVE:
            try:
                move(DecisionLog(str(self._root)), fault.number, fault.node_id)
                self.world.count("moves asked for")
            except ENDINGS as refused:
                self.world.tell(f"the move was refused: {refused}")

    # --- tables that are replaced -----------------------------------------------------------------

    def _on_copied(self, replacement: Replacement) -> None:
        if replacement.table == REQUESTS.name:
            self._copied = self.observer.standing()
            if replacement.how != OLDER:
                self.observer.requests_away()

    def _on_replaced(self, replacement: Replacement, was_made: bool) -> None:
        """Check that all followers of the table notice and restart as the product advises."""
        if replacement.table == TOPICS.name:
            if replacement.how == EMPTY:
                self.world.later(_MAKING_TOPICS_MS, self._operator, self._make_topic)
            return
        self.observer.requests_back()
        if replacement.how == AWAY:
            if was_made:
                self._lose(self.observer.brought_back_requests(self._copied))
            return
        kept = self._copied if replacement.how == OLDER else frozenset()
        self._lose(self.observer.replaced_requests(kept))
        for host in self._hosts:
            host.begins_afresh = replacement.how != EMPTY
            process = host.process
            if process is not None and process.alive and self.observer.follows_requests(process):
                self._see_ended(process, NOTICED_MS)

    def _lose(self, lost: list[str]) -> None:
        for home in self._clients:
            home.lose(lost)

    def _see_ended(self, process: Process, within_ms: float) -> None:
        """Check that a process ends within `within_ms`, not counting its pauses."""
        until = max(self.world.now, process.still_until) + within_ms
        self.world.later(
            until - self.world.now, self._operator, lambda: self._check_ended(process, until)
        )

    def _check_ended(self, process: Process, until: float) -> None:
        if process.still_until > until - NOTICED_MS:
            self._see_ended(process, NOTICED_MS)
            return
        self.world.check(REPLACED)
        if process.alive:
            self.world.violate(
                REPLACED,
                f"{process.name} goes on {NOTICED_MS / 1000:.0f} s after its table of requests was "
                "replaced",
            )

    def _make_topic(self) -> None:
        """Create the topic in a catalogue that was created again."""
        try:
            create_topic(str(self._root), TOPIC, TOPIC_PARTITIONS)
        except ENDINGS as refused:
            self.world.tell(f"the topic is not made yet: {refused}")
            self.world.later(_MAKING_TOPICS_MS, self._operator, self._make_topic)

    def _change_topics(self, number: int) -> None:
        """Make the catalogue, or another number of partitions; what it has not is answered 3."""
        root = str(self._root)
        try:
            if not has_catalogue(root):
                create_topic(root, TOPIC, TOPIC_PARTITIONS - 2)
            elif number % 3 == 0:
                delete_topic(root, TOPIC)
            elif (present := (read_counts(root) or {}).get(TOPIC)) is None:
                create_topic(root, TOPIC, TOPIC_PARTITIONS)
            else:
                alter_topic(root, TOPIC, present + 1)
        except ENDINGS as refused:
            self.world.tell(f"the catalogue stays as it is: {refused}")

    # --- all is quiet -----------------------------------------------------------------------------

    def _quieten(self) -> None:
        """Begin nothing new, let every node run, and wait until every request is answered."""
        self.world.tell("all is to be quiet")
        self._offsets.quiet = True
        self._files.faults.clear()
        self._files.troubles.clear()
        processes = [home.process for home in self._clients]
        for host in self._hosts:
            host.wanted = True
            if host.process is not None:
                processes.append(host.process)
        self.observer.calm_since = max(self.world.now, *(each.still_until for each in processes))
        self._await_answers()

    def _await_answers(self) -> None:
        assert self.observer.calm_since is not None
        limit = max(self.world.now, self.observer.calm_since) + LONGEST_WAIT_MS
        while self.world.now < limit:
            self.world.run_until(self.world.now + _POLL_MS)
            if not self.observer.waiting() and not self._unsent():
                return
        waiting = self.observer.waiting()
        events = [self.observer.asked[each].event for each in waiting[:5]]
        shown = ", ".join(f"{each.api} {each.request_id} of {each.group_id}" for each in events)
        self.world.violate(
            ANSWERED_SOON,
            f"{len(waiting)} requests are not answered {LONGEST_WAIT_MS / 1000:.0f} s after the "
            f"last fault, {self._unsent()} not written: {shown}",
        )

    def _unsent(self) -> int:
        return sum(home.unsent for home in self._clients if home.process.alive)

    def _ask_for_all(self) -> None:
        """Fetch the offsets of every group: the observer holds the answers against the log."""
        home = next(each for each in self._clients if each.process.alive)
        groups = {event.group_id for event in self.observer.sent.values() if event.group_id}
        for group in sorted(groups):
            home.send(
                RequestEvent(
                    home.new_id(), group, "offset_fetch", offset_fetch=OffsetFetchRequest(None)
                )
            )
        self._await_answers()

    def _begin_again_without_checkpoints(self) -> None:
        for host in self._hosts:
            host.lose_checkpoint()
        self.observer.calm_since = self.world.now
        self.world.run_until(self.world.now + 4 * LEASE_MS)

    def _check_tables(self) -> None:
        catalog = Catalog(str(self._root))
        found = catalog.query(
            'SELECT group_id, topic, "partition", committed_offset FROM committed_offsets'
        )
        newest: dict[Key, int] = {(row[0], row[1], row[2]): row[3] for row in found.rows}
        counted = catalog.query("SELECT request_id, count(*) FROM responses GROUP BY ALL")
        self.observer.check_tables(newest, dict(counted.rows))
        assert self._reader is not None
        self._reader.look()
        self.observer.check_answers("a slow reader saw", self._reader.read)


class _NoCollection:
    """A replacement of `gc` for a worker, because many of them share a process."""

    def collect(self) -> int:
        """Collect nothing."""
        return 0

    def freeze(self) -> None:
        """Freeze nothing."""


def simulate(plan: Plan, keep: Path | None = None) -> Outcome:
    """Run a plan in a new folder; the folder is deleted unless `keep` names it."""
    began = time.perf_counter()
    with folder_in_memory() as folder:
        simulation = Simulation(plan, folder)
        simulation.run()
        if keep is not None:
            shutil.copytree(folder, keep)
    seconds = time.perf_counter() - began
    return outcome_of(
        plan, simulation.world, simulation.schedule(), seconds, simulation.observer.longest_wait_ms
    )
