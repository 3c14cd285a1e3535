"""Who keeps a partition until the node that it is meant for has prepared for it."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.ownership import (
    CLAIMED,
    MOVE,
    STARTED,
    UNLOADING,
    ClusterState,
    fold,
)
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.ownership.decision_log import MOST_S, DecisionLog, Preparations
from group_coordinator.schemas.records import CoordinatorEvent
from tests.pipeline.node.test_node import Clock

GIVER, TAKER = 1, 2


def cluster(*later: CoordinatorEvent) -> ClusterState:
    """Two nodes of which one owns partition 7, and is to give it to the other by decision 3."""
    events = [
        decided(0, STARTED, GIVER),
        decided(1, STARTED, TAKER),
        decided(2, CLAIMED, GIVER, 7),
        decided(3, MOVE, -1, 7, TAKER),
    ]
    return fold(ClusterState(), [*events, *later])


def decided(
    epoch: int, what: str, node: int, partition: int | None = None, to: int | None = None
) -> CoordinatorEvent:
    return CoordinatorEvent(5, epoch, what, node, partition, to_node=to)


@pytest.mark.parametrize(
    ("said", "held"),
    [
        pytest.param(1, {7}, id="it prepares for what was decided before"),
        pytest.param(2, {7}, id="still"),
        pytest.param(3, set(), id="it has prepared"),
        pytest.param(9, set(), id="and for later ones"),
        pytest.param(0, set(), id="an earlier start has, and this one is of an earlier release"),
        pytest.param(-1, set(), id="a release that never says so"),
    ],
)
def test_a_partition_is_held_until_its_next_owner_has_prepared(said: int, held: set[int]):
    assert Preparations(GIVER).held(cluster(), {TAKER: said}.__getitem__) == held


def test_a_move_that_is_decided_again_is_prepared_for_again():
    again = cluster(decided(4, MOVE, -1, 7, TAKER))
    assert Preparations(GIVER).held(again, lambda _: 3) == {7}


def test_what_is_being_given_up_is_not_held():
    under_way = cluster(decided(4, UNLOADING, GIVER, 7))
    assert Preparations(GIVER).held(under_way, lambda _: 1) == set()


def test_nobody_is_waited_for_for_long():
    """It may hang, or have more to read than that: then the groups wait as long as it takes."""
    with clock.use(Clock()):
        preparations = Preparations(GIVER)
        assert preparations.held(cluster(), lambda _: 1) == {7}
        clock.sleep(MOST_S - 0.1)
        assert preparations.held(cluster(), lambda _: 1) == {7}
        clock.sleep(0.1)
        assert preparations.held(cluster(), lambda _: 1) == set()
        assert preparations.held(cluster(), lambda _: 1) == set()
        later = cluster(decided(4, MOVE, -1, 7, TAKER))
        assert preparations.held(later, lambda _: 1) == {7}, "another move has its own time"


def test_an_operator_s_holding_of_partitions_is_not_waited_for():
    holder = cluster(decided(4, STARTED, -2), decided(5, MOVE, -2, 7, -2))
    assert Preparations(GIVER).held(holder, lambda _: -1) == set()


def test_a_node_says_what_it_has_prepared_for(root):
    mine, theirs = DecisionLog(root), DecisionLog(root)
    assert theirs.prepared_by(TAKER) == -1
    mine.record_prepared(TAKER, 3)
    assert theirs.prepared_by(TAKER) == -1, "as last read"
    theirs.read()
    assert theirs.prepared_by(TAKER) == 3
    assert theirs.prepared_by(GIVER) == -1
