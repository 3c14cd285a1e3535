"""Workers share a table while one is killed and one is added, with the machine in a thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from group_coordinator.pipeline.replay.trace import load_trace, trace_names
from group_coordinator.pipeline.topics import create_table_topic
from tests.pipeline.small import SmallCoordinator
from tests.sharing.workers import Worker
from tests.waiting import wait_until

BROKER = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1_000}
SETTINGS = {
    "session.timeout.ms": 2_000,
    "heartbeat.interval.ms": 200,
    "auto.commit.interval.ms": 200,
}


def recorded_rows() -> list[dict[str, Any]]:
    """Return the requests of all recordings, as rows."""
    return [
        {
            "id": f"{name}/{line.request['request_id']}",
            "group_id": line.request["group_id"],
            "at_ms": line.at_ms,
            "request": msgspec.json.encode(line.request).decode(),
        }
        for name in trace_names()
        for line in load_trace(name).lines
        if line.request is not None
    ]


@pytest.mark.full
def test_no_row_is_put_out_by_nobody(root: str, tmp_path: Path) -> None:
    rows, table = recorded_rows(), str(tmp_path / "recorded")
    assert len({row["id"] for row in rows}) == len(rows) > 1_000
    workers: list[Worker] = []

    def feed(count: int) -> None:
        write_deltalake(table, pa.Table.from_pylist(rows[:count]), mode="append")
        del rows[:count]

    def start() -> None:
        workers.append(Worker(len(workers), root, tmp_path, "recorded", SETTINGS))

    def put_out() -> set[str]:
        for each in workers:
            each.check()
            each.listen()
        return set().union(*(each.ids for each in workers))

    def share() -> bool:
        put_out()
        living = [each.partitions for each in workers if not each.killed]
        return all(living) and set().union(*living) == set(range(6))

    wanted = {row["id"] for row in rows}
    coordinator = SmallCoordinator(root, BROKER)
    try:
        feed(300)
        create_table_topic(root, "recorded", 6, table, key="id")
        for _ in range(3):
            start()
        wait_until("three share the table", share)
        feed(300)
        wait_until("rows are put out", lambda: len(put_out()) > 300)
        workers[1].kill()
        start()
        wait_until("the others have its partitions", share)
        feed(len(rows))
        wait_until("all rows are put out", lambda: put_out() == wanted)
    finally:
        for each in workers:
            each.stop()
            each.wait()
        coordinator.stop()
