"""A node that is told to end first gives what it has to others, who have read ahead by then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from group_coordinator.coordinator.ownership import STOPPING
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.node.coordinating import HandOver
from group_coordinator.pipeline.node.node import CoordinatorNode, start
from group_coordinator.pipeline.node.stop_signals import StopRequest
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from tests.pipeline.node.fake_engine import FakeEngine
from tests.pipeline.node.looks import PARTITIONS, Clock, look, node_settings, until
from tests.pipeline.rows import rows

pytestmark = pytest.mark.slow


@contextmanager
def running(root: str, *numbers: int) -> Iterator[tuple[dict[int, CoordinatorNode], DecisionLog]]:
    """Nodes with even shares, by a clock that only the test lets go on."""
    with clock.use(Clock()):
        nodes = {number: start(FakeEngine(), root, node_settings(number)) for number in numbers}
        decisions = DecisionLog(root)
        try:
            least = PARTITIONS // len(numbers)
            until(nodes, lambda: all(len(decisions.read().kept_by(n)) >= least for n in numbers))
            until(nodes, lambda: all(node.is_ready() for node in nodes.values()))
            yield nodes, decisions
        finally:
            for node in nodes.values():
                node.abandon()


def stop(node: CoordinatorNode, others: dict[int, CoordinatorNode], timeout_s: float = 15) -> float:
    """Stop a node beside others as its process does; returns the seconds that it handed over."""
    began = clock.monotonic()
    handing_over = HandOver(node, timeout_s)
    while handing_over.advance():
        clock.sleep(0.02)
        node.lease.renew()
        look(others)
    seconds = clock.monotonic() - began
    node.stop()
    return seconds


@pytest.mark.full
def test_its_partitions_have_other_owners_before_it_stops(root: str):
    with running(root, 1, 2, 3) as (nodes, decisions):
        first = nodes.pop(1)
        serving = first.running_query
        assert serving is not None
        stop(first, nodes)
        given = [row for row in rows(root, "coordinators") if row["reason"] == "node 1 stops"]
        assert len(given) >= PARTITIONS // 3
        cluster = decisions.read()
        assert cluster.owned_by(1) == {}
        until(nodes, lambda: sum(len(decisions.read().kept_by(n)) for n in (2, 3)) == PARTITIONS)
        assert sorted(len(decisions.read().kept_by(n)) for n in (2, 3)) == [6, 7]
        assert cluster.nodes[1].stopped


def test_it_decides_for_them_until_the_others_have_read_ahead(
    root: str, monkeypatch: pytest.MonkeyPatch
):
    with running(root, 1, 2) as (nodes, decisions):
        first = nodes.pop(1)
        handing_over = HandOver(first, 15)
        owned = decisions.read().kept_by(1).keys()
        with monkeypatch.context() as others:
            others.setattr(CoordinatorNode, "_prepare_for_claims", lambda _: None)
            for _ in range(20):
                clock.sleep(0.2)
                assert handing_over.advance()
                look(nodes)
            assert decisions.read().kept_by(1).keys() == owned
            assert decisions.read().meant_for(2).keys() == owned
        until(nodes, lambda: not (handing_over.advance() and decisions.read().owned_by(1)))
        first.stop()


@pytest.mark.full
def test_who_never_reads_ahead_is_not_waited_for_longer_than_a_stop_may_take(
    root: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    with running(root, 1, 2) as (nodes, decisions):
        first = nodes.pop(1)
        monkeypatch.setattr(CoordinatorNode, "_prepare_for_claims", lambda _: None)
        owned = len(decisions.read().kept_by(1))
        assert stop(first, nodes, timeout_s=2.0) == pytest.approx(2.0, abs=0.1)
        assert f"{owned} partitions were not handed over in 2.0 s" in caplog.text
        assert decisions.read().nodes[1].stopped
        until(nodes, lambda: len(decisions.read().kept_by(2)) == PARTITIONS)


def test_a_node_without_others_stops_at_once_and_says_nothing_of_it(root: str):
    with running(root, 1) as (nodes, decisions):
        before = decisions.read().epoch
        assert stop(nodes[1], {}) == 0
        assert decisions.read().epoch == before + 1
        assert len(decisions.read().owned_by(1)) == PARTITIONS


def test_a_user_may_have_it_stop_at_once(root: str):
    with running(root, 1, 2) as (nodes, _):
        assert stop(nodes.pop(1), nodes, timeout_s=0) == 0
        assert STOPPING not in {row["event"] for row in rows(root, "coordinators")}


@pytest.mark.full
def test_when_the_others_die_meanwhile_it_stops(root: str):
    """After their lease, and not after the time that a hand-over may take."""
    with running(root, 1, 2) as (nodes, decisions):
        first, second = nodes.pop(1), nodes.pop(2)
        second.abandon()
        handing_over = HandOver(first, 600)
        began = clock.monotonic()
        while handing_over.advance():
            clock.sleep(0.5)
            first.lease.renew()
        assert 9 < clock.monotonic() - began < 21
        first.stop()
        assert decisions.read().nodes[1].stopped


@pytest.mark.full
@pytest.mark.parametrize("hangs", ["a batch", "the hand-over"])
def test_a_query_that_ends_meanwhile_does_not_keep_it_from_stopping(
    root: str, hangs: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    with running(root, 1, 2) as (nodes, decisions):
        first = nodes.pop(1)

        def ended() -> None:
            raise OSError(f"{hangs} failed")

        if hangs == "a batch":
            monkeypatch.setattr(first, "check", ended)
        else:
            monkeypatch.setattr(first, "hand_over", ended)
        stop(first, nodes)
        assert (
            f"the hand-over failed, and other nodes take over after the stop: {hangs} failed"
            in caplog.text
        )
        assert decisions.read().nodes[1].stopped


@pytest.mark.full
def test_a_start_of_the_same_node_meanwhile_is_not_told_to_end(root: str):
    """Who is fenced says nothing in the other's name."""
    with running(root, 1, 2) as (nodes, decisions):
        first = nodes.pop(1)
        handing_over = HandOver(first, 15)
        assert handing_over.advance()
        again = start(FakeEngine(), root, node_settings(1))
        try:
            clock.sleep(1)
            assert not handing_over.advance()
            first.stop()
            node = decisions.read().nodes[1]
            assert not node.stopping
            assert not node.stopped
        finally:
            again.abandon()


def test_who_is_asked_again_later_stops_at_once():
    """But `timeout` asks a process and its group: that is one and the same wish."""
    with clock.use(Clock()):
        request = StopRequest()
        assert not request.requested.is_set()
        request.set_again()
        request.set_again()
        assert request.requested.is_set()
        assert not request.at_once.is_set()
        clock.sleep(1.0)
        request.set()
        assert not request.at_once.is_set(), "a JVM that ends as well asks for the same"
        request.set_again()
        assert request.at_once.is_set()
