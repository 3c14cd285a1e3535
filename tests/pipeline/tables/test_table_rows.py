"""A table's rows as a log: what number a row has, and that nothing changes it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.tables.table_rows import NotALog, TableRows


def append(uri: str, *values: int, **options: object) -> None:
    table = pa.table({"n": pa.array(values, pa.int64()), "day": [f"d{v % 2}" for v in values]})
    write_deltalake(uri, table, mode="append", **options)


def numbers(rows: TableRows, first: int = 0, most: int = 1_000) -> list[int]:
    read = rows.read(first, most)
    assert read.end == first + read.rows.num_rows
    return read.rows.column("n").to_pylist() if read.rows.num_rows else []


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def test_rows_are_numbered_in_the_order_of_their_commits(uri: str) -> None:
    for value in (5, 3, 4):
        append(uri, value, value * 10)
    rows = TableRows(uri)
    assert rows.look()
    assert rows.end == 6
    assert numbers(rows) == [5, 50, 3, 30, 4, 40]
    assert numbers(rows, 1, 3) == [50, 3, 30]
    assert numbers(rows, 6) == []


def test_new_rows_come_at_the_end(uri: str) -> None:
    append(uri, 1, 2)
    rows = TableRows(uri)
    rows.look()
    assert not rows.look()
    append(uri, 3)
    assert rows.end == 2
    assert rows.look()
    assert numbers(rows, 1) == [2, 3]


def test_a_partitioned_table_has_its_column_back(uri: str) -> None:
    append(uri, 1, 2, 3, partition_by=["day"])
    rows = TableRows(uri)
    rows.look()
    read = rows.read(0, 10).rows
    days = dict(zip(read.column("n").to_pylist(), read.column("day").to_pylist(), strict=True))
    assert days == {1: "d1", 2: "d0", 3: "d1"}


def test_a_rewrite_without_a_change_moves_no_row(uri: str) -> None:
    for value in range(5):
        append(uri, value)
    before = TableRows(uri)
    before.look()
    DeltaTable(uri).optimize.compact()
    append(uri, 9)
    after = TableRows(uri)
    assert before.look()
    assert after.look()
    assert numbers(before) == numbers(after) == [0, 1, 2, 3, 4, 9]


def test_row_groups_are_read_one_at_a_time(uri: str) -> None:
    append(uri, *range(10))
    (file,) = Path(uri).glob("*.parquet")
    pq.write_table(pq.read_table(file), file, row_group_size=3)
    rows = TableRows(uri)
    rows.look()
    for first in range(10):
        for most in (1, 2, 10):
            assert numbers(rows, first, most) == list(range(10))[first : first + most]


def test_what_is_no_log_says_so(uri: str, tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="there is no Delta table at"):
        TableRows(uri)
    append(uri, 1, 2)
    rows = TableRows(uri)
    rows.look()
    DeltaTable(uri).delete("n = 1")
    with pytest.raises(NotALog, match="is not append-only: its version 1 removes rows"):
        rows.look()


def test_a_log_that_was_cleaned_up_has_no_order_any_more(uri: str) -> None:
    append(uri, 1)
    append(uri, 2)
    DeltaTable(uri).create_checkpoint()
    (Path(uri) / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(NotALog, match=r"not begin with version 0.*delta\.logRetentionDuration"):
        TableRows(uri).look()


def test_a_reader_that_slept_while_the_log_was_cleaned_up_says_so(uri: str, monkeypatch) -> None:
    append(uri, 1)
    rows = TableRows(uri)
    rows.look()
    append(uri, 2)
    DeltaTable(uri).create_checkpoint()
    (Path(uri) / "_delta_log" / f"{1:020}.json").unlink()
    monkeypatch.setattr("pipeline.delta.commit_reader.GONE_CHECK_S", 0)
    with pytest.raises(NotALog, match="no longer has version 1"):
        rows.look()


def test_files_that_were_vacuumed_are_missed_by_name(uri: str) -> None:
    append(uri, 1)
    append(uri, 2)
    rows = TableRows(uri)
    rows.look()
    for file in Path(uri).glob("*.parquet"):
        file.unlink()
    with pytest.raises(NotALog, match=r"is gone \(vacuumed after a rewrite"):
        rows.read(0, 1)


def test_a_newer_protocol_is_refused(uri: str) -> None:
    append(uri, 1)
    rows = TableRows(uri)
    rows.look()
    commit = Path(uri) / "_delta_log" / f"{1:020}.json"
    commit.write_text('{"protocol":{"minReaderVersion":3,"minWriterVersion":7}}')
    with pytest.raises(NotALog, match="readers of version 3"):
        rows.look()
