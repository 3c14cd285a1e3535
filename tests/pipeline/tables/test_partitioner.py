"""A row's partition is settled once, whatever any machine's clock says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from kafka.partitioner.default import murmur2

from pipeline.clock import clock_ms
from pipeline.tables import partitioner as partitioner_module
from pipeline.tables import topics
from pipeline.tables.partitioner import Partitioner, key_hash
from pipeline.tables.table_rows import TableRows
from pipeline.tables.topics import UnknownTopic, alter_topic, create_topic, delete_topic

MINUTE_MS = 60_000


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "rows")


def append(table: str, count: int) -> None:
    rows = pa.table({"id": [f"id-{n}" for n in range(count)]})
    write_deltalake(table, rows, mode="append")


def worker(root: str, table: str) -> tuple[Partitioner, TableRows]:
    """The partitions as a worker sees them that has just looked."""
    rows = TableRows(table)
    partitioner = Partitioner(root, "t", rows)
    partitioner.look()
    return partitioner, rows


def placed(partitioner: Partitioner, rows: TableRows) -> list[int]:
    batch = rows.read(0, rows.end)
    return partitioner.partitions(batch.rows.column("id"), 0) if rows.end else []


def by(count: int, *numbers: int) -> list[int]:
    return [key_hash(f"id-{n}") % count for n in numbers]


@pytest.mark.parametrize(
    ("text", "hashed"),
    [("21", -973932308), ("foobar", -790332482), ("abc", 479470107)],
)
def test_keys_are_hashed_as_kafka_hashes_them(text: str, hashed: int) -> None:
    assert key_hash(text) == hashed & 0x7FFFFFFF
    assert key_hash(text) == murmur2(text.encode()) & 0x7FFFFFFF


def test_keys_are_texts_and_rows_without_one_take_turns(root: str, table: str) -> None:
    create_topic(root, "t", 3)
    append(table, 1)
    partitioner, _ = worker(root, table)
    keys = pa.chunked_array([[21, None, None]])
    assert partitioner.partitions(keys, 10) == [key_hash("21") % 3, 11 % 3, 12 % 3]


@pytest.mark.parametrize("ahead_ms", [-MINUTE_MS, 0, MINUTE_MS])
def test_a_row_that_was_placed_stays_whatever_clock_changes_the_topic(
    root: str, table: str, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    """The machine that changes the topic has a clock a minute slow, right, or a minute fast."""
    create_topic(root, "t", 2)
    append(table, 8)
    partitioner, rows = worker(root, table)
    before = placed(partitioner, rows)
    assert before == by(2, *range(8))
    monkeypatch.setattr(topics, "clock_ms", lambda: clock_ms() + ahead_ms)
    alter_topic(root, "t", 5)
    assert not partitioner.look()
    append(table, 8)
    assert partitioner.look()
    after = before + by(5, *range(8))
    assert placed(partitioner, rows) == after
    assert placed(*worker(root, table)) == after, "a worker that starts later agrees"


def test_the_first_worker_settles_the_present_number_for_all_rows(root: str, table: str) -> None:
    create_topic(root, "t", 2)
    append(table, 8)
    alter_topic(root, "t", 5)
    assert placed(*worker(root, table)) == by(5, *range(8))


def at_the_next(monkeypatch: pytest.MonkeyPatch, step: Callable[[], None]) -> None:
    """Do a step once, after the next look at the rows and before that at the catalogue."""
    look = TableRows.look

    def then(self: TableRows) -> bool:
        found = look(self)
        monkeypatch.setattr(TableRows, "look", look)
        step()
        return found

    monkeypatch.setattr(TableRows, "look", then)


def test_rows_that_another_worker_placed_before_the_change_keep_their_place(
    root: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(root, "t", 2)
    append(table, 4)
    slow = worker(root, table)
    quick = worker(root, table)
    seen: list[list[int]] = []

    def meanwhile() -> None:
        append(table, 4)
        quick[0].look()
        seen.append(placed(*quick))
        alter_topic(root, "t", 5)

    at_the_next(monkeypatch, meanwhile)
    slow[0].look()
    assert seen == [by(2, 0, 1, 2, 3, 0, 1, 2, 3)]
    assert placed(*slow) == seen[0]
    append(table, 1)
    for one in (slow, quick):
        one[0].look()
        assert placed(*one) == [*seen[0], *by(5, 0)]


def test_a_change_that_comes_while_one_is_settled_holds_only_from_a_later_row(
    root: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(root, "t", 2)
    append(table, 4)
    slow, quick = worker(root, table), worker(root, table)
    alter_topic(root, "t", 3)
    settle = Partitioner._settle

    def meanwhile(self: Partitioner, change: object) -> None:
        monkeypatch.setattr(Partitioner, "_settle", settle)
        append(table, 2)
        alter_topic(root, "t", 5)
        quick[0].look()
        append(table, 2)
        settle(self, change)

    monkeypatch.setattr(Partitioner, "_settle", meanwhile)
    slow[0].look()
    quick[0].look()
    assert placed(*slow) == placed(*quick) == by(2, 0, 1, 2, 3, 0, 1) + by(5, 0, 1)


def test_of_two_that_settle_at_once_one_decides(
    root: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(root, "t", 2)
    append(table, 4)
    workers = [worker(root, table) for _ in range(2)]
    alter_topic(root, "t", 5)
    both, to_arrow = Barrier(2), partitioner_module.to_arrow

    def together(*arguments: object) -> pa.Table:
        both.wait(20)
        return to_arrow(*arguments)

    monkeypatch.setattr(partitioner_module, "to_arrow", together)
    threads = [Thread(target=one[0].look) for one in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    append(table, 4)
    for partitioner, _ in workers:
        partitioner.look()
    first, second = (placed(*one) for one in workers)
    assert first == second == by(2, *range(4)) + by(5, *range(4))


def test_two_tables_of_a_topic_are_settled_apart(root: str, table: str) -> None:
    create_topic(root, "t", 2)
    other = f"{table}-2"
    append(table, 3)
    append(other, 1)
    for uri in (table, other):
        worker(root, uri)
    alter_topic(root, "t", 5)
    append(table, 1)
    assert placed(*worker(root, table)) == by(2, 0, 1, 2, 0)
    append(other, 1)
    assert placed(*worker(root, f"file://{other}")) == by(2, 0, 0)
    append(other, 1)
    assert placed(*worker(root, other)) == by(2, 0, 0) + by(5, 0)


def test_a_deleted_topic_s_rows_stay_and_one_that_never_was_is_named(root: str, table: str) -> None:
    create_topic(root, "t", 2)
    append(table, 3)
    partitioner, rows = worker(root, table)
    delete_topic(root, "t")
    append(table, 1)
    partitioner.look()
    assert placed(partitioner, rows) == by(2, 0, 1, 2, 0)
    with pytest.raises(UnknownTopic, match="there is no topic 'v'"):
        Partitioner(root, "v", rows).look()
