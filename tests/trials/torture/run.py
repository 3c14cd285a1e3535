"""The trial: faults at random instants under live clients, and the promises after every few."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from group_coordinator.pipeline.clock import clock_ms, monotonic, sleep
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.interrupt import SignalEvent, on_interrupt
from group_coordinator.pipeline.tables.store import ensure_tables
from tests.support.jvm import make_archive
from tests.trials.torture.disk import small_disk
from tests.trials.torture.faults import (
    KILLS,
    LOSS,
    OTHERS,
    STAND_STILL,
    STARTING,
    Fault,
    Stage,
)
from tests.trials.torture.load import Load, running_load
from tests.trials.torture.nodes import running_cluster
from tests.trials.torture.promises import Auditor
from tests.trials.torture.reads import hooked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A step of a trial: one of these faults, the rarest first. An empty step is a check.
Step = tuple[Fault, ...]
CHECK: Step = ()
NODES = 2
_OFFSETS_PARTITIONS = 4
_LEASE_S = 8.0
KILLS_A_CHECK = 4
# The next fault comes within one of these times, s: in the same batch, in the same move, or later.
_LONGEST_DELAYS_S = (0.3, 2.0, 8.0)
# After so many pauses some coordinator must have been fenced.
PAUSES_A_FENCE = 5
# How often another fault comes along with a kill.
_OTHERS_A_KILL = 0.6
_LAST_ACTIONS = 25
_LOOK_S = 0.05
# Tables grow fast enough for upkeep to run many times during the faults. The progress timeout is
# long, because several JVMs that start at once on two cores have taken more than a minute for a
# first batch.
_CONFIG = f"""\
[group]
group.initial.rebalance.delay.ms = 200
offsets.topic.num.partitions = {_OFFSETS_PARTITIONS}
[coordinator]
lease.ms = {_LEASE_S * 1000:.0f}
progress.timeout.ms = 300000
segment.bytes = 200000
[upkeep]
log.cleaner.backoff.ms = 5000
retain.interval.ms = 20000
[spark]
spark.driver.memory = "1g"
"""


class Broken(Failure):
    """A promise was broken; the message has the seed, the last actions and where the root is."""


class TortureReport(Struct):
    """The figures of a run: kills and other faults by kind, `starts` of all coordinators.

    `recovery_s` has the seconds from a coordinator's end until it was ready, by the cause.
    `starting` counts kills of a coordinator that was not ready. `interrupted` is set if the run
    ended before all of its kills. `reads_failed` counts failed reads of all coordinators' processes
    by kind. `fenced` counts coordinators that ended because a later epoch had fenced them, and
    `restored` older copies of streaming checkpoints that were put back.
    """

    seed: int
    seconds: float
    nodes: int
    kills: dict[str, int]
    others: dict[str, int]
    lost_checkpoints: int
    starts: int
    recovery_s: dict[str, list[float]]
    checks: int
    requests: int
    commits: int
    acknowledged: int
    records: int
    members: int
    expired: int
    unknown_writers: int
    starting: int = 0
    interrupted: bool = False
    reads_failed: dict[str, int] = field(default_factory=dict)
    fenced: int = 0
    restored: int = 0

    def unproven(self) -> list[str]:
        """Return the promises that too few faults have tested to prove anything."""
        pauses = self.others.get("pause", 0)
        if self.fenced or pauses < PAUSES_A_FENCE:
            return []
        return [f"of {pauses} pauses longer than a lease no coordinator was fenced"]

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the report as rows of a figure and its value."""
        return [
            ("kills", sum(self.kills.values())),
            *((f"kills: {name}", count) for name, count in self.kills.items()),
            ("of them of a coordinator that was starting", self.starting),
            *((f"other faults: {name}", count) for name, count in self.others.items()),
            *((f"reads that failed: {kind}", n) for kind, n in self.reads_failed.items()),
            *([("coordinators that were fenced", self.fenced)] if self.fenced else []),
            ("lost streaming checkpoints", self.lost_checkpoints),
            *([("restored streaming checkpoints", self.restored)] if self.restored else []),
            ("starts of a coordinator", self.starts),
            *(
                (f"  after {hit}: times, median s until it is ready", _times(seconds))
                for hit, seconds in sorted(self.recovery_s.items())
            ),
            ("checks of all promises", self.checks),
            ("requests, each answered once", self.requests),
            ("commits", self.commits),
            ("of them acknowledged, and kept", self.acknowledged),
            ("records of the offsets topic", self.records),
            ("members that joined", self.members),
            ("of them expired", self.expired),
            ("commits of unknown starts", self.unknown_writers),
            ("seed", str(self.seed)),
            ("seconds", f"{self.seconds:.0f}"),
        ]


def _times(seconds: list[float]) -> str:
    return f"{len(seconds)}, {median(seconds):.1f}"


def torture(
    kills: int | None,
    minutes: float | None,
    say: Callable[[str], None],
    seed: int | None = None,
    nodes: int = NODES,
    kills_a_check: int = KILLS_A_CHECK,
    script: Iterable[Step] | None = None,
) -> TortureReport:
    """Kill `kills` times, or for `minutes`, and check the promises; `say` reports progress.

    All promises are checked after each `kills_a_check` kills, and at the end. `script` replaces the
    random steps. SIGINT or SIGTERM ends the faults early; the promises are then checked and the
    report returned. Raises Broken if a promise does not hold; the root is then kept.
    """
    chosen = clock_ms() % 1_000_000 if seed is None else seed
    say(f"torture: seed {chosen}, {nodes} coordinators")
    if script is None:
        # It takes as long as several starts; the few starts of a script do not repay it.
        make_archive(say)
    with _kept_on_failure(say) as folder:
        root = folder / "root"
        root.mkdir()
        config = folder / "torture.toml"
        config.write_text(_CONFIG)
        with small_disk(root) as disk:
            if disk is None:
                say("torture: no disk is filled: only root may mount one")
            ensure_tables(str(root))
            with (
                hooked(folder / "reads", str(root)) as reads,
                running_cluster(str(root), config, folder, nodes) as cluster,
            ):
                random = Random(chosen)
                stage = Stage(
                    str(root), _OFFSETS_PARTITIONS, _LEASE_S, cluster, disk, random, reads
                )
                trial = _Trial(stage, chosen, say)
                try:
                    with on_interrupt(trial.interrupted.set):
                        by_chance = trial.by_chance(kills, minutes, kills_a_check)
                        return trial.run(by_chance if script is None else script)
                except Failure as error:
                    if disk is not None:
                        shutil.copytree(root, folder / "kept-root")
                    raise Broken(
                        f"{error}\nseed {chosen}; the last actions:\n  "
                        + "\n  ".join(trial.actions)
                    ) from error


@contextmanager
def _kept_on_failure(say: Callable[[str], None]) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="group-coordinator-torture-"))
    try:
        yield folder
    except BaseException:
        say(f"torture: root and logs are kept in {folder}")
        raise
    shutil.rmtree(folder)


class _Trial:
    """A run, with its log of actions."""

    def __init__(self, stage: Stage, seed: int, say: Callable[[str], None]) -> None:
        self.actions: deque[str] = deque(maxlen=_LAST_ACTIONS)
        self.interrupted = SignalEvent()
        self._stage = stage
        self._seed = seed
        self._say = say
        self._began = monotonic()
        self._done: dict[str, Counter[str]] = {"kill": Counter(), "other": Counter()}
        self._checks = 0
        self._lost = 0
        self._starting = 0
        self._auditor = Auditor(stage.root)

    def run(self, steps: Iterable[Step]) -> TortureReport:
        """Run the steps."""
        self._stage.cluster.settle()
        self._note("all coordinators are ready")
        with running_load(self._stage.root, self._seed) as load:
            for step in steps:
                if step == CHECK:
                    self._check(load)
                elif not self.interrupted.is_set():
                    self._do(step)
        return self._report(load)

    def by_chance(
        self, kills: int | None, minutes: float | None, kills_a_check: int
    ) -> Iterator[Step]:
        """Yield rounds of kills, other faults and a check, until there were enough kills.

        A round begins with all nodes ready; one is paused until another one has taken over.
        """
        while not self._is_over(kills, minutes):
            yield (STAND_STILL,)
            for _ in range(kills_a_check):
                if self._is_over(kills, minutes):
                    break
                yield KILLS
                if self._stage.random.random() < _OTHERS_A_KILL:
                    yield OTHERS
            yield CHECK

    def _is_over(self, kills: int | None, minutes: float | None) -> bool:
        if self.interrupted.is_set():
            return True
        if kills is not None and self._done["kill"].total() >= kills:
            return True
        return minutes is not None and monotonic() - self._began > 60 * minutes

    def _do(self, faults: Step) -> None:
        """Run one of the faults after a random delay: the first possible one in a random order.

        A kill is retried until it is possible, because a coordinator that has ended must first be
        restarted.
        """
        kind = "kill" if faults[0] in (*KILLS, LOSS) else "other"
        sleep(self._stage.random.uniform(0, self._stage.random.choice(_LONGEST_DELAYS_S)))
        while not self._tried(kind, faults) and kind == "kill" and not self.interrupted.is_set():
            sleep(_LOOK_S)

    def _tried(self, kind: str, faults: Step) -> bool:
        """Run the first of the faults that is possible now; return False if none is."""
        random, done = self._stage.random, self._done[kind]
        self._stage.cluster.check()
        least = min(done[fault.name] for fault in faults)
        # The rarest first, so that a short run has some of each.
        order = sorted(faults, key=lambda fault: (done[fault.name] - least, random.random()))
        for fault in order:
            at = monotonic()
            said = fault.act(self._stage)
            if said is not None:
                done[fault.name] += 1
                self._starting += kind == "kill" and said.endswith(STARTING)
                self._note(said, at)
                if fault.name == "full disk":
                    self._auditor.excused_until = clock_ms() + 30_000
                return True
        return False

    def _check(self, load: Load) -> None:
        self._stage.cluster.settle()
        self._note("all coordinators are ready")
        writers = {
            query_id: node.node_id
            for node in self._stage.cluster.nodes
            for query_id in node.query_ids
        }
        self._auditor.check(load, writers)
        self._stage.cluster.check()
        self._stage.cluster.forgive()
        self._checks += 1
        done = self._done["kill"].total()
        self._note(f"every promise holds after {done} kills, {len(self._auditor.answers)} answers")

    def _note(self, text: str, at: float | None = None) -> None:
        """Log an action at a time, by default now, and the supervisor's actions before it."""
        now = monotonic() if at is None else at
        for when, said in sorted([*self._stage.cluster.heard(), (now, text)]):
            self._lost += "without its" in said
            line = f"{when - self._began:7.1f} s  {said}"
            self.actions.append(line)
            self._say(line)

    def _report(self, load: Load) -> TortureReport:
        counts, auditor = load.book.counts, self._auditor
        recovery_s: dict[str, list[float]] = {}
        for node in self._stage.cluster.nodes:
            for hit, seconds in node.recoveries:
                recovery_s.setdefault(hit, []).append(round(seconds, 1))
        return TortureReport(
            seed=self._seed,
            seconds=monotonic() - self._began,
            nodes=len(self._stage.cluster.nodes),
            kills=dict(self._done["kill"]),
            others=dict(self._done["other"]),
            lost_checkpoints=self._lost,
            starts=sum(node.starts for node in self._stage.cluster.nodes),
            recovery_s=recovery_s,
            checks=self._checks,
            requests=len(auditor.answers),
            commits=counts["commits"],
            acknowledged=counts["acknowledged"],
            records=auditor.records,
            members=counts["members"],
            expired=auditor.expired,
            unknown_writers=auditor.unknown_writers,
            reads_failed=self._stage.reads.counts(),
            fenced=sum(node.fenced for node in self._stage.cluster.nodes),
            restored=sum(node.restored for node in self._stage.cluster.nodes),
            starting=self._starting,
            interrupted=self.interrupted.is_set(),
        )
