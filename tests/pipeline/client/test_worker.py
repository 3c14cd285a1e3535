"""Workers that share a table's rows, against the real machine in a thread."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from kafka.partitioner.default import murmur2
from typer.testing import CliRunner

from group_coordinator.pipeline.cli import main as cli
from group_coordinator.pipeline.client import CannotFollow, worker
from group_coordinator.pipeline.client.worker import (
    BatchReport,
    CommandFailed,
    ProcessedRow,
    Worker,
    to_command,
)
from group_coordinator.pipeline.tables.topic_catalogue import (
    UnknownTopic,
    alter_topic,
    create_topic,
)
from group_coordinator.pipeline.topics import create_table_topic
from tests.pipeline.small import SmallCoordinator
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

BROKER = {"group.initial.rebalance.delay.ms": 0}
QUICK = {"heartbeat.interval.ms": 200, "auto.commit.interval.ms": 100}


@pytest.fixture
def table(root: str) -> Iterator[str]:
    """A table of 60 rows in three commits that is a topic of four partitions; a coordinator."""
    uri = f"{root}/rows"
    for start in (0, 20, 40):
        append(uri, range(start, start + 20))
    create_table_topic(root, "t", 4, uri, key="id")
    coordinator = SmallCoordinator(root, BROKER)
    yield uri
    coordinator.stop()


def append(uri: str, ids: Any) -> None:
    names = [f"id-{number}" for number in ids]
    write_deltalake(uri, pa.table({"id": names, "n": list(ids)}), mode="append")


def numbers(rows: list[ProcessedRow]) -> list[int]:
    """The numbers of the rows that were put out."""
    return [json.loads(bytes(row.row))["n"] for row in rows]


def partition_of(number: int, count: int = 4) -> int:
    return (murmur2(f"id-{number}".encode()) & 0x7FFFFFFF) % count


class Desk:
    """A worker in a thread, and the rows that it put out."""

    def __init__(self, root: str, **options: Any) -> None:
        self.rows: list[ProcessedRow] = []
        self.said: list[Any] = []
        self.worker = Worker(
            root,
            "g",
            "t",
            output=self._put_out,
            on_report=self.said.append,
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

    def are_there() -> bool:
        assert any(desk.is_alive for desk in desks)
        return len({number for desk in desks for number in numbers(desk.rows)}) >= count

    wait_until(f"{count} rows", are_there)


# --- workers --------------------------------------------------------------------------------------


def test_one_worker_puts_out_every_row_in_order_once(root: str, table: str) -> None:
    desk = Desk(root, once=True)
    desk.join()
    assert sorted(numbers(desk.rows)) == list(range(60))
    for partition in range(4):
        mine = [row for row in desk.rows if row.partition == partition]
        assert numbers(mine) == [n for n in range(60) if partition_of(n) == partition]
        assert [row.offset for row in mine] == list(range(len(mine)))
    assert bytes(desk.rows[0].row) == b'{"id":"id-%d","n":%d}' % (2 * tuple(numbers(desk.rows)[:1]))
    batches = [said for said in desk.said if isinstance(said, BatchReport)]
    assert sum(batch.rows for batch in batches) == 60
    assert max(batch.rows for batch in batches) == 7
    assert batches[-1].lag == 0


@pytest.mark.full
def test_the_next_worker_goes_on_where_the_last_one_ended(root: str, table: str) -> None:
    Desk(root, once=True).join()
    append(table, [60, 61])
    desk = Desk(root, once=True)
    desk.join()
    assert sorted(numbers(desk.rows)) == [60, 61]


@pytest.mark.full
def test_latest_is_the_end_of_the_table(root: str, table: str) -> None:
    desk = Desk(root, once=True, settings={**QUICK, "auto.offset.reset": "latest"})
    desk.join()
    assert desk.rows == []


@pytest.mark.full
def test_two_workers_share_the_rows_and_follow_new_ones(root: str, table: str) -> None:
    desks = [Desk(root), Desk(root)]
    for count in range(60, 120, 10):
        await_rows(count, *desks)
        append(table, range(count, count + 10))
    await_rows(120, *desks)
    desks[0].stop()
    append(table, range(120, 140))
    await_rows(140, *desks)
    desks[1].stop()
    times = Counter(number for desk in desks for number in numbers(desk.rows))
    assert sorted(times) == list(range(140))
    late = {partition_of(number) for number in numbers(desks[1].rows) if number >= 120}
    assert late == {partition_of(number) for number in range(120, 140)}


@pytest.mark.full
def test_a_topic_that_grows_loses_no_row(root: str, table: str) -> None:
    desk = Desk(root)
    await_rows(60, desk)
    alter_topic(root, "t", 7)
    append(table, range(60, 61))
    await_rows(61, desk)
    append(table, range(61, 161))
    await_rows(161, desk)
    desk.stop()
    placed = dict(zip(numbers(desk.rows), (row.partition for row in desk.rows), strict=True))
    assert {number for number in placed if placed[number] > 3} <= set(range(60, 161))
    assert [placed[n] for n in range(60)] == [partition_of(n) for n in range(60)]
    assert [placed[n] for n in range(61, 161)] == [partition_of(n, 7) for n in range(61, 161)]


def test_what_was_not_put_out_is_not_committed(root: str, table: str) -> None:
    settings = {"output": to_command("exit 3"), "settings": QUICK, "once": True}
    with pytest.raises(CommandFailed, match=r"'exit 3' ended with status 3: \d+ rows are not"):
        Worker(root, "g", "t", **settings).run()
    desk = Desk(root, once=True)
    desk.join()
    assert len(desk.rows) == 60


@pytest.mark.full
def test_rows_up_to_a_change_of_the_table_are_put_out_and_then_it_is_named(
    root: str, table: str
) -> None:
    DeltaTable(table).delete("n = 5")
    append(table, [60])
    rows: list[ProcessedRow] = []
    options = {"output": rows.extend, "settings": QUICK}
    with pytest.raises(CannotFollow, match=r"topic 't': version 3 of .* removes or changes rows"):
        Worker(root, "g", "t", **options).run()
    assert sorted(numbers(rows)) == list(range(60))


# --- the command ----------------------------------------------------------------------------------


def arguments(root: str, *more: str) -> list[str]:
    return ["worker", "--root", root, "--group", "g", "--topic", "t", "--once", *more]


@pytest.mark.full
def test_the_command_prints_rows_and_says_what_happens(
    root: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    done = CliRunner().invoke(cli.make_app(), arguments(root, "--json"))
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(row["row"]["n"] for row in rows) == list(range(60))
    assert rows[3] == {"partition": 0, "offset": 3, "row": rows[3]["row"]}
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert said[0] == {"event": "assigned", "partitions": [0, 1, 2, 3], "generation": 1}
    batches = [one for one in said if "rows" in one]
    assert sum(one["rows"] for one in batches) == 60
    assert batches[-1]["lag"] == 0


def test_a_command_takes_the_rows(
    root: str, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    out = tmp_path / "out"
    run = arguments(root, "--exec", f"cat >> {out}", "--batch-rows", "25")
    done = CliRunner().invoke(cli.make_app(), run)
    assert (done.exit_code, done.stdout) == (0, ""), done.output
    assert "10 to do" in done.stderr
    assert len(out.read_text().splitlines()) == 60


@pytest.mark.full
def test_a_wrong_call_is_named(root: str, table: str) -> None:
    create_topic(root, "plain", 4)
    with pytest.raises(
        UnknownTopic, match=r"there is no topic 'plain' with a table under .*: create it with"
    ):
        Worker(root, "g", "plain")
    done = CliRunner().invoke(cli.make_app(), arguments(root, "--consumer-property", "x"))
    assert (done.exit_code, "is not key=value" in done.output) == (2, True)
