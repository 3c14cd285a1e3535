"""`run` looks at the node's lease before there is a JVM, and ends without harm to who renews it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from group_coordinator.pipeline.node import coordinating, job
from group_coordinator.pipeline.node.node import CoordinatorNode, start
from group_coordinator.pipeline.node.stop_signals import StopSignals
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.settings import Settings
from tests.pipeline.node.fake_engine import FakeEngine

NOTHING = "nothing"


class FakeLog:
    """A process's log that keeps why it failed."""

    file = None
    said = NOTHING

    def __init__(self, *_: object) -> None:
        FakeLog.said = NOTHING

    def write_to_file(self, _path: object) -> bool:
        return True

    def fail(self, text: str, _detail: str = "") -> None:
        FakeLog.said = text


class World:
    """A node that runs, and `run` for the same node beside it, on a Spark that is none.

    `renews` says whether the first one renews its lease while the JVM starts; `attempt` is the
    number that a cluster gives to the second one.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.renews = True
        self.attempt: str | None = None
        self.holder = start(FakeEngine(), root, Settings())
        self.started: list[CoordinatorNode] = []

    @contextmanager
    def session(self, *_: object) -> Iterator[SimpleNamespace]:
        if self.renews:
            self.holder.lease.renew()
        conf = SimpleNamespace(get={"spark.app.attempt.id": self.attempt}.get)
        yield SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))

    def coordinate(self, _spark: object, root: str, settings: Settings, *more: object) -> None:
        *_, seen = more
        self.started.append(start(FakeEngine(), root, settings, seen))

    def run(self, *options: str) -> int:
        return job.main(["--root", self.root, *options])

    def is_ended(self) -> bool:
        """Whether the first one was fenced off by a later start."""
        node = DecisionLog(self.root).read().nodes[1]
        return node.epoch > self.holder.epoch.number

    def abandon(self) -> None:
        for node in (self.holder, *self.started):
            node.abandon()


@pytest.fixture
def world(root: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(root)
    monkeypatch.setattr(job, "_session", world.session)
    monkeypatch.setattr(job, "ProcessLog", FakeLog)
    monkeypatch.setattr(job, "end_quietly", lambda: None)
    monkeypatch.setattr(StopSignals, "install", lambda _self: None)
    monkeypatch.setattr(job, "check_executors", lambda _spark: None)
    monkeypatch.setattr(coordinating, "coordinate", world.coordinate)
    yield world
    world.abandon()


@pytest.mark.parametrize("attempt", [None, "1"])
def test_a_second_process_is_refused_in_one_line(world: World, attempt: str | None) -> None:
    world.attempt = attempt
    assert world.run() == 1
    assert FakeLog.said.startswith("node 1 is already running at localhost:9092 since ")
    assert not world.is_ended()


def test_another_node_is_not(world: World) -> None:
    assert world.run("--node-id", "2") == 0
    assert not world.is_ended()


def test_one_that_does_not_renew_its_lease_is_taken_over_from(world: World) -> None:
    world.renews = False
    assert (world.run(), FakeLog.said) == (0, NOTHING)
    assert world.is_ended()


def test_one_that_is_told_to_take_over_does(world: World) -> None:
    assert (world.run("--take-over"), FakeLog.said) == (0, NOTHING)
    assert world.is_ended()


def test_a_cluster_s_second_attempt_takes_over_from_the_first(world: World) -> None:
    """YARN allows two by default: one that was refused would leave no coordinator at all."""
    world.attempt = "2"
    assert (world.run(), FakeLog.said) == (0, NOTHING)
    assert world.is_ended()
