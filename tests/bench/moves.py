"""Effect of a move or a restart on other groups: their longest response time meanwhile.

Two coordinators share a root, under the load of `tests.bench.paced` with a group for each member.
Windows of equal length alternate between the events and no event; an event happens at the beginning
of its window. A window's figure is the longest response time of the *other* groups, those of
partitions that kept their owner. The window without an event takes its figure of the same groups.
Requests are sent during the window, and belong to it however late the response is.

A coordinator that starts takes the CPU of two cores for some seconds, even on another root. So a
start on another root is measured too: the difference is the cost of the restart.

The moved groups' own figure is the time without a coordinator. For a killed coordinator most of it
is the lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Annotated, NamedTuple

from msgspec import Struct

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.coordinator.ownership import ClusterState
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.ownership.partitions import await_move, move
from tests.bench.paced import INTERVAL_S, LEAST_ANSWERS, pace
from tests.bench.report import Aim, Column, Report
from tests.bench.running import COORDINATOR, WARM_UP_S, several
from tests.support.fleet import Fleet
from tests.support.process import KillableCoordinator
from tests.support.rebalance import form

ONE, MANY, RESTART, OTHER_ROOT, KILL = (
    "a move of one partition",
    "a move of half a share",
    "a stop and a start",
    "a start on another root",
    "a kill and a start",
)
# The events that share a window without any, under the names of the command line.
KINDS = {"moves": (ONE, MANY), "restart": (RESTART, OTHER_ROOT), "kill": (KILL,)}
# 100 heartbeats a second: few enough for three JVMs on two cores.
GROUPS = 100
WINDOWS = 6
MOST_MS = 500.0
_MOVE_TIMEOUT_S = 60.0
_SETTLE_S = 2.0
_SETTLED_TIMEOUT_S = 120.0
# Two nodes: one keeps running, and one is stopped or killed, and restarted.
_STAYS, _RESTARTS = 1, 2


class MovesFigures(Struct):
    """The figures of one kind of event, over all its windows. Times in ms.

    `partitions` is the median number of partitions that changed their owner in a window.
    """

    event: Annotated[str, Column("event")]
    windows: Annotated[int, Column("windows")]
    seconds: Annotated[float, Column("s each", ".0f")]
    partitions: Annotated[float, Column("partitions", ".0f", absent=0)]
    others_ms: Annotated[float, Column("others, median ms", ",.0f")]
    others_most_ms: Annotated[float, Column("max", ",.0f")]
    quiet_ms: Annotated[float, Column("without event, median ms", ",.0f")]
    quiet_most_ms: Annotated[float, Column("max ", ",.0f")]
    more_ms: Annotated[float, Column("difference, ms", ",.0f")]
    moved_ms: Annotated[float, Column("moved, median ms", ",.0f", absent=0)]
    moved_most_ms: Annotated[float, Column("max  ", ",.0f", absent=0)]
    unanswered: Annotated[int, Column("unanswered")]


class MovesReport(Report):
    """Each kind of event; `per_second` are the load's requests."""

    per_second: int
    figures: list[MovesFigures]

    def title(self) -> str:
        """Return the description of the load."""
        return f"{self.per_second:,} heartbeats/s, two coordinators; longest answer of a window"

    def rows(self) -> list[MovesFigures]:
        """In the order in which they took turns."""
        return self.figures

    def aims(self) -> list[Aim]:
        """Return the aims: an event of some groups costs other groups next to nothing."""
        found = {each.event: each for each in self.figures}
        aims = [
            Aim(f"{event}, the other groups", "ms", MOST_MS, found[event].more_ms)
            for event in (ONE, MANY, RESTART, KILL)
            if event in found
        ]
        if RESTART in found and OTHER_ROOT in found:
            more = found[RESTART].others_ms - found[OTHER_ROOT].others_ms
            aims.append(Aim(f"{RESTART}, over {OTHER_ROOT}", "ms", MOST_MS, more))
        return [*aims, Aim("unanswered", "", 0, sum(each.unanswered for each in self.figures))]


class Window(NamedTuple):
    """A window: the longest response time of each group, s, and the moved partitions."""

    longest: dict[str, float]
    answers: int
    unanswered: int
    moved: frozenset[int]

    def of_others(self, moved: frozenset[int]) -> float:
        """Return the longest response time of groups outside these partitions, s."""
        return max(t for group, t in self.longest.items() if _partition(group) not in moved)

    def of_moved(self) -> float:
        """Return the longest response time of the moved groups, s; 0 if there are none."""
        moved = (t for group, t in self.longest.items() if _partition(group) in self.moved)
        return max(moved, default=0.0)


def figures(event: str, seconds: float, pairs: Sequence[tuple[Window, Window]]) -> MovesFigures:
    """Return the figures of pairs of windows, each with the event and without it."""
    others = [1000 * with_it.of_others(with_it.moved) for with_it, _ in pairs]
    quiet = [1000 * without.of_others(with_it.moved) for with_it, without in pairs]
    moved = [1000 * with_it.of_moved() for with_it, _ in pairs]
    return MovesFigures(
        event=event,
        windows=len(pairs),
        seconds=seconds,
        partitions=median(len(with_it.moved) for with_it, _ in pairs),
        others_ms=median(others),
        others_most_ms=max(others),
        quiet_ms=median(quiet),
        quiet_most_ms=max(quiet),
        more_ms=median(others) - median(quiet),
        moved_ms=median(moved),
        moved_most_ms=max(moved),
        unanswered=sum(each.unanswered for pair in pairs for each in pair),
    )


def moved_since(
    before: ClusterState, after: ClusterState, ended: int | None = None
) -> frozenset[int]:
    """Return the partitions that had no coordinator for a while, because their claim changed.

    The partitions of a node that `ended` are included: after a kill it may return to them within
    its lease.
    """
    gone = set() if ended is None else set(before.owned_by(ended))
    claimed = {p for p, now in after.partitions.items() if now.epoch != before.partitions[p].epoch}
    return frozenset(gone | claimed)


def bench_moves(
    seconds: float,
    restart_seconds: float,
    windows: int,
    say: Callable[[str], None],
    kinds: Sequence[str] = tuple(KINDS),
    groups: int = GROUPS,
    warm_up: float = WARM_UP_S,
    root: str | None = None,
) -> MovesReport:
    """Measure `windows` pairs of windows of each kind; `say` reports progress.

    A window with a move is `seconds` long, one with a start `restart_seconds`. `root` is the folder
    of the tables; the roots of starts are next to it. It must be new, and all of them are kept.
    Raises Failure.
    """
    length = {kind: seconds if kind == "moves" else restart_seconds for kind in kinds}
    pairs: dict[str, list[tuple[Window, Window]]] = {}
    say("moves: starting two nodes")
    with several(COORDINATOR, 2, root=root) as (processes, its_root):
        bench = _Bench(processes, its_root, groups)
        bench.await_shares()
        form(bench.fleet)
        say(f"moves: {groups} groups formed, {warm_up:.0f} s of warm-up")
        pace(bench.fleet, warm_up, processes[0])
        for number in range(windows):
            for kind in kinds:
                turns = [None, *KINDS[kind]]
                if number % 2:
                    turns.reverse()
                seen = {event: bench.window(event, length[kind]) for event in turns}
                for event in KINDS[kind]:
                    pair = seen[event], seen[None]
                    pairs.setdefault(event, []).append(pair)
                    one = figures(event, length[kind], [pair])
                    say(
                        f"moves: {event}, {number + 1} of {windows}: {one.partitions:.0f} "
                        f"partitions; others {one.others_ms:.0f} ms, without it "
                        f"{one.quiet_ms:.0f} ms, moved {one.moved_ms:.0f} ms"
                    )
    found = [figures(event, length[kind], pairs[event]) for kind in kinds for event in KINDS[kind]]
    return MovesReport(int(groups / INTERVAL_S), found)


class _Bench:
    """Two nodes under a load, and the events of a window."""

    def __init__(self, processes: Sequence[KillableCoordinator], root: str, groups: int) -> None:
        self.fleet = Fleet(root, groups, 1, "moves")
        self._stays, self._restarts = processes
        self._root = root
        self._decisions = DecisionLog(root)
        self._worker = ThreadPoolExecutor(1)
        self._other: KillableCoordinator | None = None
        self._starts_elsewhere = 0
        self._do: dict[str, Callable[[], None]] = {
            ONE: self._move_one,
            MANY: self._move_many,
            RESTART: self._restart,
            OTHER_ROOT: self._start_elsewhere,
            KILL: self._kill,
        }

    def window(self, event: str | None, seconds: float) -> Window:
        """Return the responses of a window with this event at its beginning; None: no event."""
        longest: dict[str, float] = {}

        def heard(request_id: str, taken_s: float) -> None:
            group = request_id.partition("/")[0]
            longest[group] = max(taken_s, longest.get(group, 0.0))

        before = self._cluster()
        doing = None if event is None else self._worker.submit(self._do[event])
        times, unanswered = pace(self.fleet, seconds, self._stays, heard=heard)
        if doing is not None:
            doing.result()
        after = self._cluster()
        self._settle()
        if len(times) < LEAST_ANSWERS:
            raise Failure(f"only {len(times)} answers in a window; let it be longer")
        moved = moved_since(before, after, _RESTARTS if event in (RESTART, KILL) else None)
        return Window(longest, len(times), unanswered, moved)

    def await_shares(self) -> None:
        """Wait, without a load, until each node has its share."""
        self._until_settled(lambda: time.sleep(_SETTLE_S))

    def _settle(self) -> None:
        """Continue the load until no partition is moving, and a little longer."""
        if self._other is not None:
            self._other.kill()
            self._other = None
        self._until_settled(self._go_on)
        self._go_on()

    def _go_on(self) -> None:
        pace(self.fleet, _SETTLE_S, self._stays)

    def _until_settled(self, meanwhile: Callable[[], object]) -> None:
        limit = time.monotonic() + _SETTLED_TIMEOUT_S
        while not _is_settled(self._cluster()):
            if time.monotonic() > limit:
                raise Failure("partitions are under way for too long")
            meanwhile()

    def _cluster(self) -> ClusterState:
        # A separate reader, because the worker's thread uses the other one.
        return DecisionLog(self._root).read()

    # --- events -----------------------------------------------------------------------------------

    def _move_one(self) -> None:
        busy = {_partition(member.group_id) for member in self.fleet.members}
        self._move([min(busy)])

    def _move_many(self) -> None:
        cluster = self._decisions.read()
        fuller = max(cluster.kept_by(_STAYS), cluster.kept_by(_RESTARTS), key=len)
        self._move(sorted(fuller)[: len(cluster.partitions) // 4])

    def _move(self, partitions: Sequence[int]) -> None:
        """Move partitions of one node to the other one, as an operator does, one by one."""
        owner = self._decisions.read().partitions[partitions[0]].owner
        to = _STAYS if owner == _RESTARTS else _RESTARTS
        for partition in partitions:
            move(self._decisions, partition, to)
        for partition in partitions:
            await_move(self._decisions, partition, to, _MOVE_TIMEOUT_S)

    def _restart(self) -> None:
        self._restarts.stop()
        self._start_again()

    def _kill(self) -> None:
        self._restarts.kill()
        self._start_again()

    def _start_again(self) -> None:
        self._restarts.start_again()
        self._restarts.await_ready()

    def _start_elsewhere(self) -> None:
        folder = self._stays.log_path.parent
        self._starts_elsewhere += 1
        root = f"{self._root.rstrip('/')}-other-{self._starts_elsewhere}"
        self._other = KillableCoordinator(root, folder / "bench.toml", folder / "log-other")
        self._other.await_ready()


def _is_settled(cluster: ClusterState) -> bool:
    """Whether nothing is under way, nor about to be."""
    shares = [len(cluster.kept_by(number)) for number in (_STAYS, _RESTARTS)]
    is_shared = cluster.by_hand or max(shares) <= min(shares) + 1
    states = cluster.partitions.values()
    at_rest = all(state.to_node in (None, state.owner) and not state.unloading for state in states)
    return is_shared and at_rest and 0 < sum(shares) == len(cluster.partitions)


def _partition(group_id: str) -> int:
    return partition_for(group_id, GroupCoordinatorConfig().offsets_topic_num_partitions)
