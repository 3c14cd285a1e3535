"""Workers that share a table's rows, against the real machine in a thread."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from pipeline.cli import main as cli
from pipeline.client import worker
from pipeline.client.worker import (
    Batch,
    CommandFailed,
    ProcessedRow,
    UnknownColumn,
    Worker,
    to_command,
)
from pipeline.tables.partitioner import key_hash
from pipeline.tables.topics import alter_topic, create_topic
from tests.pipeline.small import SmallCoordinator

BROKER = {"group.initial.rebalance.delay.ms": 0}
QUICK = {"heartbeat.interval.ms": 200, "auto.commit.interval.ms": 100}


@pytest.fixture
def table(root: str) -> Iterator[str]:
    """A table of 60 rows in three commits, and a coordinator with a topic of four partitions."""
    create_topic(root, "t", 4)
    uri = f"{root}/rows"
    for start in (0, 20, 40):
        append(uri, range(start, start + 20))
    coordinator = SmallCoordinator(root, BROKER)
    yield uri
    coordinator.stop()


def append(uri: str, ids: Any) -> None:
    names = [f"id-{number}" for number in ids]
    write_deltalake(uri, pa.table({"id": names, "n": list(ids)}), mode="append")


class Desk:
    """A worker in a thread, and the rows that it put out."""

    def __init__(self, root: str, table: str, **options: Any) -> None:
        self.rows: list[ProcessedRow] = []
        self.said: list[Any] = []
        self.worker = Worker(
            root,
            "g",
            "t",
            table,
            "id",
            output=self._put_out,
            tell=self.said.append,
            **{"batch_rows": 7, "settings": QUICK, **options},
        )
        self._thread = threading.Thread(target=self.worker.run)
        self._thread.start()

    def _put_out(self, rows: list[ProcessedRow]) -> None:
        self.rows += rows

    def stop(self) -> None:
        self.worker.stop()
        self.join()

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()


def await_rows(count: int, *desks: Desk) -> None:
    """Wait until the desks have put out so many rows between them, not counting doubles."""
    limit = time.monotonic() + 30
    while len({row.offset for desk in desks for row in desk.rows}) < count:
        assert time.monotonic() < limit and any(desk.is_alive for desk in desks)
        time.sleep(0.02)


# --- workers --------------------------------------------------------------------------------------


def test_one_worker_puts_out_every_row_in_order_once(root: str, table: str) -> None:
    desk = Desk(root, table, once=True)
    desk.join()
    assert [row.offset for row in desk.rows] == list(range(60))
    assert [row.row for row in desk.rows] == [{"id": f"id-{n}", "n": n} for n in range(60)]
    assert all(row.partition == key_hash(row.row["id"]) % 4 for row in desk.rows)
    last = [said for said in desk.said if isinstance(said, Batch)][-1]
    assert (last.offset, last.end) == (60, 60)


def test_the_next_worker_goes_on_where_the_last_one_ended(root: str, table: str) -> None:
    Desk(root, table, once=True).join()
    append(table, [60, 61])
    desk = Desk(root, table, once=True)
    desk.join()
    assert [row.offset for row in desk.rows] == [60, 61]


def test_latest_is_the_end_of_the_table(root: str, table: str) -> None:
    desk = Desk(root, table, once=True, settings={**QUICK, "auto.offset.reset": "latest"})
    desk.join()
    assert desk.rows == []


def test_two_workers_share_the_rows_and_follow_new_ones(root: str, table: str) -> None:
    desks = [Desk(root, table), Desk(root, table)]
    for count in range(60, 120, 10):
        await_rows(count, *desks)
        append(table, range(count, count + 10))
    await_rows(120, *desks)
    desks[0].stop()
    append(table, range(120, 140))
    await_rows(140, *desks)
    desks[1].stop()
    times = Counter(row.offset for desk in desks for row in desk.rows)
    assert sorted(times) == list(range(140))
    assert {row.partition for row in desks[1].rows if row.offset >= 120} == {0, 1, 2, 3}


def test_a_topic_that_grows_loses_no_row(root: str, table: str) -> None:
    desk = Desk(root, table)
    await_rows(60, desk)
    alter_topic(root, "t", 7)
    append(table, range(60, 61))
    await_rows(61, desk)
    append(table, range(61, 161))
    await_rows(161, desk)
    desk.stop()
    assert {row.partition for row in desk.rows if row.offset > 60} == set(range(7))
    assert {row.partition for row in desk.rows if row.offset < 60} == set(range(4))


def test_what_was_not_put_out_is_not_committed(root: str, table: str) -> None:
    settings = {"output": to_command("exit 3"), "settings": QUICK, "once": True}
    with pytest.raises(CommandFailed, match="'exit 3' ended with status 3: 60 rows are not"):
        Worker(root, "g", "t", table, "id", **settings).run()
    desk = Desk(root, table, once=True)
    desk.join()
    assert len(desk.rows) == 60


# --- the command ----------------------------------------------------------------------------------


def arguments(root: str, table: str, *more: str) -> list[str]:
    where = ["--root", root, "--group", "g", "--topic", "t", "--table", table]
    return ["worker", *where, "--partition-by", "id", "--once", *more]


def test_the_command_prints_rows_and_says_what_happens(
    root: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    done = CliRunner().invoke(cli.app, arguments(root, table, "--json"))
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["offset"] for row in rows] == list(range(60))
    assert rows[3]["row"] == {"id": "id-3", "n": 3}
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert said[0] == {"event": "assigned", "partitions": [0, 1, 2, 3], "generation": 1}
    assert said[1] == {"rows": 60, "partitions": said[1]["partitions"], "offset": 60, "end": 60}


def test_a_command_takes_the_rows(
    root: str, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    out = tmp_path / "out"
    run = arguments(root, table, "--exec", f"cat >> {out}", "--batch-rows", "25")
    done = CliRunner().invoke(cli.app, run)
    assert (done.exit_code, done.stdout) == (0, ""), done.output
    assert "at 50 of 60" in done.stderr
    assert len(out.read_text().splitlines()) == 60


def test_a_wrong_call_is_named(root: str, table: str) -> None:
    with pytest.raises(UnknownColumn, match="has no column 'key', only id, n"):
        Worker(root, "g", "t", table, "key")
    done = CliRunner().invoke(cli.app, arguments(root, table, "--consumer-property", "x"))
    assert (done.exit_code, "is not key=value" in done.output) == (2, True)
