"""Tests of a window of `bench moves`: the groups that count, and the compared window."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.coordinator.ownership import CLAIMED, READY, STARTED, ClusterState, fold
from group_coordinator.schemas.records import CoordinatorEvent
from tests.bench.moves import (
    KILL,
    ONE,
    OTHER_ROOT,
    RESTART,
    MovesReport,
    Window,
    figures,
    moved_since,
)

STAYS, GOES = "stays", "goes"
MOVED = frozenset({partition_for(GOES, 50)})


def window(stays: float, goes: float, moved: frozenset[int] = frozenset()) -> Window:
    return Window({STAYS: stays, GOES: goes}, 100, 0, moved)


def test_the_other_groups_are_those_that_nobody_moved_in_both_windows_of_a_pair() -> None:
    pairs = [
        (window(0.3, 2.0, MOVED), window(0.2, 0.9)),
        (window(0.5, 3.0, MOVED), window(0.1, 0.9)),
        (window(0.4, 1.0, MOVED), window(0.3, 0.9)),
    ]
    found = figures(ONE, 8.0, pairs)
    assert (found.windows, found.partitions) == (3, 1)
    assert (found.others_ms, found.others_most_ms) == (400, 500)
    assert (found.quiet_ms, found.quiet_most_ms) == (200, 300)
    assert found.more_ms == pytest.approx(200)
    assert (found.moved_ms, found.moved_most_ms) == (2000, 3000)


def test_a_restart_is_held_to_its_own_windows_and_to_a_start_elsewhere() -> None:
    restart = figures(RESTART, 30.0, [(window(1.5, 3.0, MOVED), window(0.2, 0.2))])
    elsewhere = figures(OTHER_ROOT, 30.0, [(window(1.3, 1.3), window(0.2, 0.2))])
    aims = MovesReport(100, [restart, elsewhere]).aims()
    assert [(round(aim.found), aim.met) for aim in aims] == [(1300, False), (200, True), (0, True)]


def cluster(*decisions: tuple[str, int, int | None]) -> ClusterState:
    events = (
        CoordinatorEvent(5, epoch, event, node, partition)
        for epoch, (event, node, partition) in enumerate(decisions)
    )
    return fold(ClusterState(), events)


def test_the_groups_of_a_killed_coordinator_are_no_others_though_it_comes_back_to_them() -> None:
    """A coordinator that restarts within its lease keeps its partitions without a new claim."""
    before = [(CLAIMED, 1, 7), (CLAIMED, 2, 8), (CLAIMED, 2, 9)]
    again = cluster(*before, (STARTED, 2, None), (READY, 2, None))
    assert moved_since(cluster(*before), again, ended=2) == {8, 9}
    assert moved_since(cluster(*before), again) == set()
    taken = cluster(*before, (CLAIMED, 1, 8))
    assert moved_since(cluster(*before), taken) == {8}


def test_a_window_whose_answers_never_came_misses_the_aim() -> None:
    late = window(0.3, 0.1, MOVED)._replace(unanswered=2)
    report = MovesReport(100, [figures(KILL, 30.0, [(late, window(0.3, 0.1))])])
    assert [aim.met for aim in report.aims()] == [True, False]
