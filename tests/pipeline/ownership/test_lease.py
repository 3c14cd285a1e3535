"""A lease is renewed while the node's query gets on, and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from group_coordinator.coordinator.ownership import STARTED
from group_coordinator.pipeline import background, clock
from group_coordinator.pipeline.background import Work
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.ownership.lease import LeaseObserver, LeaseRenewal, ProgressWatch
from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.schemas.records import CoordinatorEvent
from group_coordinator.schemas.tables import COORDINATORS
from tests.clocks import AheadClocks
from tests.support.failing_reads import KINDS, STORE_KINDS, count_reads, failing_reads, name_of

MOST_READS = 200


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def ask_until(watch: ProgressWatch, clock: Clock, until: float) -> bool:
    """Ask every second, as a node does; return the last answer."""
    while clock.now < until:
        clock.now += 1
        is_progressing = watch.is_progressing()
    return is_progressing


class ByHand:
    """Does the repeated work when it is told to."""

    def __init__(self) -> None:
        self.work: list[Work] = []

    def repeat(self, _name: str, _interval_s: float, work: Work) -> ByHand:
        self.work.append(work)
        return self

    def run(self, _name: str, work: Work) -> None:
        work()

    def stop(self) -> None:
        self.work.clear()


@pytest.fixture
def by_hand() -> Iterator[ByHand]:
    hand = ByHand()
    with background.use(hand):
        yield hand


def test_a_query_gets_on_while_its_batches_end() -> None:
    clock, batches = Clock(), [0]
    watch = ProgressWatch(60, 5, clock)
    assert watch.is_progressing(), "there is nothing to watch"
    watch.watch(lambda: batches[0])
    assert ask_until(watch, clock, 60)
    assert not ask_until(watch, clock, 61)
    assert watch.stuck_s() == 61
    batches[0] += 1
    assert watch.is_progressing()
    assert ask_until(watch, clock, 100)


def test_a_query_that_has_got_on_hangs_sooner_than_one_that_waits_for_its_first_batch() -> None:
    clock, batches = Clock(), [7]
    watch = ProgressWatch(60, 5, clock)
    watch.watch(lambda: batches[0])
    assert not ask_until(watch, clock, 61), "others may take over"
    assert not watch.is_hung()
    ask_until(watch, clock, 600)
    assert not watch.is_hung()
    ask_until(watch, clock, 601)
    assert watch.is_hung()
    batches[0] += 1
    assert watch.is_progressing()
    ask_until(watch, clock, 661)
    assert not watch.is_hung()
    ask_until(watch, clock, 662)
    assert watch.is_hung()


def test_the_time_to_load_partitions_does_not_count() -> None:
    clock = Clock()
    watch = ProgressWatch(60, 5, clock)
    watch.watch(lambda: 5)
    assert ask_until(watch, clock, 50)
    watch.watch(None)
    assert ask_until(watch, clock, 500)
    watch.watch(lambda: 5)
    assert ask_until(watch, clock, 560)
    assert not ask_until(watch, clock, 561)


def test_the_time_that_a_process_stood_still_does_not_count() -> None:
    clock = Clock()
    watch = ProgressWatch(60, 5, clock)
    watch.watch(lambda: 5)
    clock.now = 3600
    assert watch.stuck_s() == 5


def test_the_lease_of_a_node_whose_query_hangs_runs_out(root: str, by_hand: ByHand) -> None:
    decisions, is_progressing = DecisionLog(root), [True]
    LeaseRenewal(root, 1, 60_000, is_progressing=lambda: is_progressing[0])
    (renew,) = by_hand.work

    def lease() -> int:
        decisions.read()
        return decisions.lease_of(1)

    first = lease()
    renew()
    second = lease()
    assert second > first
    is_progressing[0] = False
    renew()
    assert lease() == second
    is_progressing[0] = True
    renew()
    assert lease() > second, "a batch that took long has ended, and nobody has taken over yet"


def alive(decisions: DecisionLog, observer: LeaseObserver) -> set[int]:
    """The nodes that are alive, by a new look."""
    cluster = decisions.read()
    return observer.alive(cluster, decisions.lease_of)


@pytest.mark.full
@pytest.mark.parametrize("kind", [*KINDS, *STORE_KINDS], ids=name_of)
def test_a_lease_is_kept_and_told_whichever_read_fails(
    tmp_path: Path, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    """Who holds it renews it the next time; who watches does not take its holder for dead."""
    count_reads(monkeypatch, kind)
    for fails in range(1, MOST_READS):
        root, clocks = str(tmp_path / f"root-{fails}"), AheadClocks()
        ensure_table(root, COORDINATORS)
        with clock.use(clocks):
            decisions, observer = DecisionLog(root), LeaseObserver(2, 60_000)
            decisions.decide(decisions.read(), [CoordinatorEvent(0, 0, STARTED, 1)])
            LeaseRenewal(root, 1, 60_000)
            renew = by_hand.work[-1]

            assert alive(decisions, observer) == {1, 2}
            with failing_reads(root, fails, kind) as reads:
                # Longer than a lease, which is as long as four renewals.
                for _ in range(6):
                    clocks.monotonic_ahead_s += 15
                    clocks.wall_ahead_s += 15
                    renew()
                    with suppress(OSError, DeltaError, Failure):
                        assert alive(decisions, observer) == {1, 2}
                has_failed = reads.has_failed
            before = decisions.lease_of(1)
            clocks.wall_ahead_s += 1
            renew()
            assert alive(decisions, observer) == {1, 2}
            assert decisions.lease_of(1) > before, f"after read {fails} had failed"
            # It is not taken for alive because nothing could be read of it.
            for _ in range(5):
                clocks.monotonic_ahead_s += 15
                found = alive(decisions, observer)
            assert found == {2}
        if not has_failed:
            assert fails > 1
            return
    raise AssertionError("it reads for ever")
