"""Which gateways there are, as each of them and its clients see it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.gateway import server
from group_coordinator.pipeline.gateway.brokers import (
    LEASE_S,
    REFRESH_EVERY_S,
    Broker,
    Brokers,
    cluster_id,
)
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from tests.pipeline.gateway.running import coordinator, gateway
from tests.waiting import wait_until

PLAIN = "PLAINTEXT"


def brokers(root: str, host: str, port: int) -> Brokers:
    return Brokers(root, {PLAIN: (host, port)})


@pytest.fixture
def time() -> Iterator[list[float]]:
    """The observers' time, s; the wall clock, which stands still, may be set."""
    now = [1_000.0, 1_000_000.0]
    with clock.use(_Clock(now)):
        yield now


class _Clock:
    def __init__(self, now: list[float]) -> None:
        self._now = now

    def wall_ms(self) -> int:
        return int(self._now[1] * 1000)

    def monotonic_s(self) -> float:
        return self._now[0]

    def sleep(self, seconds: float) -> None:
        self._now[0] += seconds


def test_an_address_keeps_its_number(root: str) -> None:
    first = brokers(root, "a", 1)
    second = brokers(root, "a", 2)
    assert (first.own, second.own) == (Broker(0, "a", 1), Broker(1, "a", 2))
    assert list(second.alive(PLAIN)) == [first.own, second.own]
    first.refresh()
    assert list(first.alive(PLAIN)) == [first.own, second.own]
    again = brokers(root, "a", 1)
    assert again.own == first.own


def test_who_stops_in_order_is_gone_at_once(root: str) -> None:
    first, second = brokers(root, "a", 1), brokers(root, "a", 2)
    second.stop()
    first.refresh()
    assert list(first.alive(PLAIN)) == [first.own]


def test_who_does_not_renew_its_lease_is_gone(root: str, time: list[float]) -> None:
    first, second = brokers(root, "a", 1), brokers(root, "a", 2)
    first.refresh()
    for _ in range(int(LEASE_S / REFRESH_EVERY_S)):
        time[0] += REFRESH_EVERY_S
        first.refresh()
        assert second.own in first.alive(PLAIN)
    time[0] += REFRESH_EVERY_S
    first.refresh()
    assert list(first.alive(PLAIN)) == [first.own]
    second.refresh()
    first.refresh()
    assert second.own in first.alive(PLAIN)


def test_a_clock_that_is_set_back_ends_no_lease(root: str, time: list[float]) -> None:
    first, second = brokers(root, "a", 1), brokers(root, "a", 2)
    time[1] -= 86_400
    for _ in range(8):
        time[0] += REFRESH_EVERY_S
        second.refresh()
        first.refresh()
        assert list(first.alive(PLAIN)) == [first.own, second.own]


def test_a_store_that_fails_leaves_who_was_alive(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = brokers(root, "a", 1), brokers(root, "a", 2)
    first.refresh()

    def fail() -> None:
        raise OSError("the store is away")

    monkeypatch.setattr(first, "_read", fail)
    first.refresh()
    assert list(first.alive(PLAIN)) == [first.own, second.own]


def test_nobody_is_gone_because_none_could_be_read(root: str, time: list[float]) -> None:
    """As where the store was away for a minute: the first look after it tells nothing of others."""
    first = brokers(root, "h", 1)
    second = brokers(root, "h", 2)
    first.refresh()
    assert first.alive(PLAIN) == [first.own, second.own]
    time[0] += 60
    first.refresh()
    assert first.alive(PLAIN) == [first.own, second.own]
    for _ in range(3):
        time[0] += REFRESH_EVERY_S
        first.refresh()
    assert first.alive(PLAIN) == [first.own]


def test_groups_spread_over_the_gateways_as_all_of_them_say(root: str) -> None:
    first, second = brokers(root, "a", 1), brokers(root, "a", 2)
    first.refresh()
    chosen = [first.gateway_for(f"group-{number}", PLAIN) for number in range(40)]
    assert chosen == [second.gateway_for(f"group-{number}", PLAIN) for number in range(40)]
    assert set(chosen) == {first.own, second.own}


@contextmanager
def two_gateways(root: str) -> Iterator[tuple[Broker, Broker]]:
    create_topic(root, "orders", 8)
    with coordinator(root), gateway(root) as first, gateway(root) as second:
        yield first, second


def test_a_client_of_one_gateway_is_told_of_the_others(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REFRESH_EVERY_S", 0.05)
    with two_gateways(root) as (first, second):
        admin = AdminClient({"bootstrap.servers": f"{second.host}:{second.port}"})
        # The client may ask either; the first one sees the second at its next look.
        wait_until("two brokers", lambda: len(admin.list_topics(timeout=30).brokers) >= 2)
        found = admin.list_topics(timeout=30)
        assert {Broker(each.id, each.host, each.port) for each in found.brokers.values()} == {
            first,
            second,
        }
        leaders = {each.leader for each in found.topics["orders"].partitions.values()}
        assert leaders == {first.node_id, second.node_id}
        assert found.cluster_id == cluster_id(root)
