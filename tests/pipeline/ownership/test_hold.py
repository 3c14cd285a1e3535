"""A change by hand holds every partition: coordinators give them up, and get them back."""

from __future__ import annotations

import threading

import pytest

from group_coordinator.coordinator.ownership import (
    CLAIMED,
    RELEASED,
    STARTED,
    UNLOADING,
    ClusterState,
    decide,
)
from group_coordinator.pipeline.delta.appender import Appender, Epoch, FencedError
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.ownership.fencing import fence, fence_dead
from group_coordinator.pipeline.ownership.hold import HOLDER, holding_partitions
from group_coordinator.pipeline.ownership.lease import LeaseRenewal
from group_coordinator.pipeline.tables.store import WRITTEN, table_uri
from group_coordinator.schemas.records import CoordinatorEvent
from group_coordinator.schemas.tables import OFFSETS_TOPIC

PARTITIONS, LEASE_MS = 4, 1_000


def owners(cluster: ClusterState) -> dict[int, int | None]:
    return {p: state.owner for p, state in cluster.partitions.items()}


def event(what: str, node_id: int, partition: int | None = None) -> CoordinatorEvent:
    return CoordinatorEvent(1, -1, what, node_id, partition)


class NodeThread:
    """A node that does what it is to do, without a stream."""

    def __init__(self, root: str, node_id: int) -> None:
        self.root, self.node_id = root, node_id
        self.decisions = DecisionLog(root)
        cluster, _ = self.decisions.decide_until(lambda _: [event(STARTED, node_id)])
        fence(root, Epoch(node_id, cluster.epoch))
        self.lease = LeaseRenewal(root, node_id, LEASE_MS)
        self.gave_up: list[int] = []
        self.stopping = threading.Event()
        self.act({node_id})
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def act(self, alive: set[int]) -> None:
        cluster = self.decisions.read()
        plan = decide(cluster, self.node_id, alive, PARTITIONS)
        for what, partitions in (
            (UNLOADING, plan.unload),
            (RELEASED, plan.unload),
            (CLAIMED, plan.claim),
        ):
            if partitions:
                self.decisions.decide(
                    self.decisions.read(), [event(what, self.node_id, p) for p in partitions]
                )
        self.gave_up += plan.unload

    def run(self) -> None:
        while not self.stopping.wait(0.01):
            holder = self.decisions.read().nodes.get(HOLDER)
            held = holder is not None and not holder.stopped
            self.act({self.node_id, HOLDER} if held else {self.node_id})

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()
        self.lease.stop()


def test_a_running_coordinator_gives_its_partitions_up_and_gets_them_back(root: str) -> None:
    node = NodeThread(root, 1)
    try:
        with holding_partitions(root, PARTITIONS, LEASE_MS, "test"):
            assert owners(DecisionLog(root).read()) == dict.fromkeys(range(PARTITIONS), HOLDER)
        assert sorted(node.gave_up) == list(range(PARTITIONS))
        while owners(DecisionLog(root).read()) != dict.fromkeys(range(PARTITIONS), 1):
            assert node.thread.is_alive()
    finally:
        node.stop()


def test_where_no_coordinator_runs_nobody_is_waited_for(root: str) -> None:
    with holding_partitions(root, PARTITIONS, LEASE_MS, "test") as epoch:
        assert epoch.node_id == HOLDER
    cluster = DecisionLog(root).read()
    assert owners(cluster) == dict.fromkeys(range(PARTITIONS))
    assert cluster.nodes[HOLDER].stopped
    claim = decide(cluster, 1, {1}, PARTITIONS).claim
    assert claim == tuple(range(PARTITIONS)), "and the next coordinator loads what was written"


def test_a_coordinator_that_died_is_fenced_when_its_lease_is_over(root: str) -> None:
    node = NodeThread(root, 1)
    node.stop()
    mine = DecisionLog(root).read().nodes[1].epoch
    with holding_partitions(root, PARTITIONS, LEASE_MS, "test"):
        for table in WRITTEN:
            zombie = Appender(table_uri(root, table), Epoch(1, mine))
            with pytest.raises(FencedError):
                zombie.append(None)


def test_of_two_changes_at_once_the_earlier_one_is_fenced(root: str) -> None:
    with holding_partitions(root, PARTITIONS, LEASE_MS, "first") as first:
        appender = Appender(table_uri(root, OFFSETS_TOPIC), first)
        second = holding_partitions(root, PARTITIONS, LEASE_MS, "second")
        with second, pytest.raises(FencedError):
            appender.append(None)
        assert DecisionLog(root).read().nodes[HOLDER].stopped


def test_a_node_that_has_started_again_since_is_not_taken_for_dead(root: str) -> None:
    fence(root, Epoch(1, 7))
    assert not fence_dead(root, ClusterState(epoch=5), [1])
    assert fence_dead(root, ClusterState(epoch=7), [1])
