"""A second process of a node is refused by name while the first is alive, and else never."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from group_coordinator.coordinator.ownership import NodeState
from group_coordinator.pipeline import background
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.node.node import CoordinatorNode, start
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.ownership.fencing import (
    NodeAlreadyRunning,
    ObservedLease,
    check_not_running,
    is_alive,
    read_lease,
)
from group_coordinator.pipeline.tables.store import TornRoot
from tests.pipeline.node.fake_engine import FakeEngine
from tests.pipeline.node.looks import node_settings
from tests.pipeline.ownership.test_lease import ByHand
from tests.support.failing_reads import KINDS, failing_reads, name_of

TIMEOUT_MS = 5_000
MOST_READS = 100
STARTED_AT = 1_700_000_000_000


def node(epoch: int, stopped: bool = False, process: str | None = None) -> NodeState:
    return NodeState(1, "kafka.example", 9092, epoch, STARTED_AT, stopped=stopped, process=process)


@pytest.mark.parametrize(
    ("seen", "now", "lease", "alive"),
    [
        (ObservedLease(), None, -1, False),
        (ObservedLease(500, 7), node(3), 500, False),
        (ObservedLease(500, 7), node(3), 501, True),
        (ObservedLease(500, 7), node(3), 499, True),
        (ObservedLease(500, 7), node(8), 500, True),
        (ObservedLease(500, 7), node(3, stopped=True), 501, False),
        (ObservedLease(500, 7), node(8, stopped=True), 501, False),
        (ObservedLease(), node(0), -1, True),
    ],
    ids=[
        "no lease",
        "not moved",
        "moved",
        "a clock set back",
        "started meanwhile",
        "stopped meanwhile",
        "started and stopped meanwhile",
        "the first of two on a new root",
    ],
)
def test_who_is_alive(seen: ObservedLease, now: NodeState | None, lease: int, alive: bool) -> None:
    assert is_alive(seen, now, lease) is alive


@pytest.mark.parametrize(
    ("process", "words"),
    [("process 4711 of build-7", " as process 4711 of build-7"), (None, "")],
    ids=["with a process", "of an earlier release"],
)
def test_the_holder_is_named_and_what_to_do(process: str | None, words: str) -> None:
    with pytest.raises(NodeAlreadyRunning) as refused:
        check_not_running(ObservedLease(500, 7), node(3, process=process), 501)
    assert str(refused.value) == (
        f"node 1 is already running at kafka.example:9092 since 2023-11-14 22:13:20 UTC{words} and "
        "has just renewed its lease: give this coordinator another --node-id, or end the other "
        "one with --take-over"
    )


class Nodes:
    """Starts of node 1 at a root, whose leases are renewed by hand."""

    def __init__(self, root: str, hand: ByHand) -> None:
        self.root = root
        self._hand = hand
        self._nodes: list[CoordinatorNode] = []

    def start(self, seen: ObservedLease | None) -> CoordinatorNode:
        started = start(FakeEngine(), self.root, node_settings(1), seen)
        self._nodes.append(started)
        return started

    def see(self) -> ObservedLease:
        return read_lease(self.root, 1, TIMEOUT_MS)

    def renew(self) -> None:
        self._hand.work[-1]()

    def epoch(self) -> int:
        return DecisionLog(self.root).read().nodes[1].epoch

    def abandon(self) -> None:
        for each in self._nodes:
            each.abandon()


@pytest.fixture
def nodes(root: str) -> Iterator[Nodes]:
    hand = ByHand()
    with background.use(hand):
        found = Nodes(root, hand)
        yield found
        found.abandon()


def test_a_node_that_was_killed_starts_again_at_once(nodes: Nodes) -> None:
    nodes.start(nodes.see())
    assert nodes.start(nodes.see()).epoch.number == nodes.epoch()


def test_a_second_process_is_refused_and_the_first_goes_on(nodes: Nodes) -> None:
    first = nodes.start(nodes.see())
    seen = nodes.see()
    nodes.renew()
    here = f"as process {os.getpid()} of {socket.gethostname()} and has just renewed its lease"
    with pytest.raises(NodeAlreadyRunning, match=here):
        nodes.start(seen)
    first.tick()
    assert nodes.epoch() == first.epoch.number
    nodes.start(None)
    assert nodes.epoch() > first.epoch.number, "unless it was told to take over"


def test_of_two_that_start_at_once_the_second_is_refused(nodes: Nodes) -> None:
    seen = nodes.see()
    first = nodes.start(seen)
    with pytest.raises(NodeAlreadyRunning):
        nodes.start(seen)
    assert nodes.epoch() == first.epoch.number


def test_a_start_that_was_written_though_its_write_failed_is_not_another_process(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_after_the_first_append(monkeypatch)
    nodes.start(nodes.see())
    decisions = DecisionLog(nodes.root)
    decisions.read()
    assert decisions.starts_of(1) == [0]


def fail_after_the_first_append(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first append of rows raises an error though its commit is in the table."""
    append, failed = Appender.append, []

    def append_and_fail(self: Appender, rows, app_id=None, version=0) -> bool:
        done = append(self, rows, app_id, version)
        if rows is not None and not failed:
            failed.append(1)
            raise OSError("the connection was closed")
        return done

    monkeypatch.setattr(Appender, "append", append_and_fail)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_a_read_that_fails_once_hides_no_holder(nodes: Nodes, kind: int) -> None:
    nodes.start(nodes.see())
    expected = nodes.see()
    for fails in range(1, MOST_READS):
        with failing_reads(nodes.root, fails, kind) as reads:
            # Of a start that ends with an error nobody is ended.
            with suppress(TornRoot, OSError):
                assert nodes.see() == expected
            has_failed = reads.has_failed
        if not has_failed:
            return
    raise AssertionError("it reads for ever")


def test_a_torn_root_says_what_to_do(nodes: Nodes) -> None:
    nodes.start(nodes.see())
    newest = max(Path(nodes.root, "coordinators", "_delta_log").glob("*.json"))
    newest.write_text("")
    with pytest.raises(TornRoot, match="repair --root"):
        nodes.see()
