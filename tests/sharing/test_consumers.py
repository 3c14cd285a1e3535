"""Unmodified Kafka consumers share a table that grows, with the machine in a thread."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from group_coordinator.pipeline.topics import create_table_topic
from tests.pipeline.small import SmallCoordinator
from tests.sharing.child import Child
from tests.sharing.consumers import Consumer, Gateway
from tests.waiting import wait_until

BROKER = {"group.initial.rebalance.delay.ms": 0}
ROWS = 5_000


@pytest.mark.full
def test_every_row_is_consumed_once(root: str, tmp_path: Path) -> None:
    table = str(tmp_path / "orders")
    coordinator = SmallCoordinator(root, BROKER)
    gateway = Gateway(root, tmp_path)
    writer = Child("writer", ["tests.sharing.orders", table, str(ROWS)], tmp_path)
    consumers: list[Consumer] = []

    def listened() -> bool:
        for each in (gateway, writer, *consumers):
            each.check()
        for consumer in consumers:
            consumer.listen()
        return True

    def seen() -> Counter[int]:
        return sum((each.ids() for each in consumers), Counter())

    try:
        wait_until("rows are written", lambda: listened() and writer.told())
        create_table_topic(root, "orders", 6, table, key="customer")
        wait_until("the gateway serves", lambda: listened() and gateway.broker)
        assert gateway.broker is not None
        consumers += [
            Consumer(number, gateway.broker, "billing", "orders", tmp_path) for number in range(3)
        ]
        wait_until(
            "each has partitions",
            lambda: listened() and all(len(each.partitions) == 2 for each in consumers),
        )
        writer.go_on()
        wait_until("all rows are consumed", lambda: listened() and len(seen()) == 2 * ROWS)
        assert set(seen().values()) == {1}
    finally:
        for each in (*consumers, writer, gateway):
            each.stop()
            each.wait()
        coordinator.stop()
