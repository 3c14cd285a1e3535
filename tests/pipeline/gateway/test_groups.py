"""Unmodified clients share a table that grows; one is killed, one is added, nothing is missed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from group_coordinator.pipeline.topics import create_table_topic
from tests.pipeline.gateway.consumer_process import ConsumerProcess
from tests.pipeline.gateway.running import coordinator, gateway
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 6
WAIT_S = 90.0
LARGE = pytest.mark.long


def append(uri: str, first: int, after: int) -> None:
    numbers = range(first, after)
    rows = pa.table({"n": pa.array(numbers, pa.int64()), "id": [f"id-{n}" for n in numbers]})
    write_deltalake(uri, rows, mode="append")


@pytest.mark.parametrize(
    ("client", "strategy", "static", "count"),
    [
        ("confluent", "cooperative-sticky", False, 3_000),
        *(
            pytest.param(client, strategy, static, 100_000, marks=LARGE)
            for client, strategies in {
                "confluent": ("range", "cooperative-sticky"),
                "kafka_python": ("range", "cooperative-sticky"),
                "aiokafka": ("range", "sticky"),
            }.items()
            for strategy in strategies
            for static in (False, True)
        ),
    ],
)
def test_three_share_a_table_one_is_killed_one_added_and_nothing_is_missed(
    root: str, tmp_path: Path, client: str, strategy: str, static: bool, count: int
) -> None:
    uri = f"{root}/rows"
    append(uri, 0, count // 2)
    create_table_topic(root, "t", PARTITIONS, uri, key="id")
    members: list[ConsumerProcess] = []
    with coordinator(root), gateway(root) as broker:
        address = f"{broker.host}:{broker.port}"

        def add() -> None:
            number = len(members)
            instance = f"i{number}" if static else None
            members.append(ConsumerProcess(tmp_path, number, client, address, strategy, instance))

        def await_rows(wanted: int) -> set[tuple[int, ...]]:
            def found() -> set[tuple[int, ...]]:
                return {row for each in members for row in each.rows()}

            wait_until(
                lambda: f"{wanted} rows: {[len(each.rows()) for each in members]}",
                lambda: len(found()) >= wanted,
                WAIT_S,
            )
            return found()

        try:
            for _ in range(3):
                add()
            await_rows(count // 8)
            members[1].kill()
            append(uri, count // 2, count * 3 // 4)
            await_rows(count // 2)
            add()
            append(uri, count * 3 // 4, count)
            rows = await_rows(count)
        finally:
            for each in members:
                each.kill()
    assert sorted(n for _, _, n in rows) == list(range(count))
    for partition in range(PARTITIONS):
        offsets = sorted(offset for number, offset, _ in rows if number == partition)
        assert offsets == list(range(len(offsets)))
