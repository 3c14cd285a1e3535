"""The load of `bench gateway`, before a coordinator without Spark."""

from __future__ import annotations

import os

import pytest

from tests.bench import gateway as bench
from tests.bench import held
from tests.bench.gateway import GATEWAY, Figures, consume_table, produce
from tests.bench.held import HeldLoad, hold
from tests.bench.socket_fleet import SocketFleet
from tests.pipeline.gateway.running import coordinator, gateway
from tests.support.fleet import Member


@pytest.mark.full
def test_members_on_sockets_join_heartbeat_and_are_counted(root: str) -> None:
    groups = [[Member(f"g{g}", f"g{g}-{m}", 10_000) for m in range(3)] for g in range(3)]
    with (
        coordinator(root) as deciding,
        gateway(root) as broker,
        # The last group's members share the connections of the others.
        SocketFleet(broker.host, broker.port, connections=6) as fleet,
    ):
        fleet.grow(groups[:2])
        fleet.grow(groups[2:])
        # Each sends one, and the machine has a minute to have it answered.
        found = fleet.beat(0.5, 0.5, late_s=60.0)
        assert (len(found.times), found.late, found.errors) == (9, 0, 0)
        # Without responses each heartbeat is late, including those that could not be sent.
        deciding.pause()
        found = fleet.beat(0.3, 0.15)
        assert (found.times, found.late) == ([], 18)
        deciding.resume()
        # Responses that arrive now belong to the previous stretch, and do not count in this one.
        found = fleet.beat(0.5, 0.5, late_s=60.0)
        assert (len(found.times), found.late, found.errors) == (9, 0, 0)


@pytest.mark.full
def test_members_are_added_until_an_answer_comes_too_late(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = HeldLoad(heartbeat_s=0.5, step=100, most=250, seconds=0.5)
    said: list[str] = []
    with coordinator(root), gateway(root) as broker:
        monkeypatch.setattr(held, "LATE_S", 60.0)
        found = hold("small", broker.port, os.getpid(), load, said.append)
        assert (found.members, found.limit) == (200, "as many as were asked")
        assert (found.heartbeat_s, found.session_s) == (0.5, 45.0)
        assert (found.per_second, found.coordinator_us) == (400, 0)
        assert found.gateway_us > 0
        assert [text.partition(": p50")[0] for text in said] == [
            "small: 100 members join",
            "small, 100 members",
            "small: 100 members join",
            "small, 200 members",
        ]
        monkeypatch.setattr(held, "LATE_S", 0.0)
        found = hold("late", broker.port, os.getpid(), load, said.append)
        assert found.members == -1
        assert found.limit.startswith("100: ")


@pytest.mark.parametrize(("heartbeat_s", "session_ms"), [(3.0, 45_000), (30.0, 100_000)])
def test_a_session_is_a_few_heartbeats_long(heartbeat_s: float, session_ms: int) -> None:
    assert HeldLoad(heartbeat_s).session_ms == session_ms


def test_a_table_is_consumed_and_a_topic_produced_to(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_ACKS", 3)
    with gateway(root) as broker:
        figures = Figures(GATEWAY, 0.0, 0.0)
        consume_table(figures, root, broker.port, 1_000, lambda _text: None)
        produce(figures, broker.port, 1_000, lambda _text: None)
    assert figures.produced_per_s > 0
    assert figures.ack_p50_ms > 0
    assert figures.records_per_s > 0
    assert round(figures.mb_per_s / figures.records_per_s * 1e6) == 100
