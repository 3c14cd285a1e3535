"""Nodes that a test has look at the cluster state, round by round."""

from __future__ import annotations

from collections.abc import Callable

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.node.node import CoordinatorNode
from group_coordinator.pipeline.settings import CoordinatorSettings, Settings

PARTITIONS = 13


class Clock:
    """A machine's clocks, which a test sets."""

    now_s = 1_000.0

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def until(nodes: dict[int, CoordinatorNode], holds: Callable[[], bool], rounds: int = 100) -> None:
    for _ in range(rounds):
        if holds():
            return
        clock.sleep(0.02)
        look(nodes)
    raise AssertionError("it did not come to pass")


def look(nodes: dict[int, CoordinatorNode]) -> None:
    for node in nodes.values():
        # Leases are renewed by the clock that runs, and looked at by the one of a test.
        node.lease.renew()
        node.poll()


def node_settings(node_id: int) -> Settings:
    return Settings(
        coordinator=CoordinatorSettings(node_id=node_id),
        group=GroupCoordinatorConfig(offsets_topic_num_partitions=PARTITIONS),
    )
