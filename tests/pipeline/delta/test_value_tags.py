"""A file's tag names the values of a column, so that who wants others need not open the file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.delta.commit_reader import open_files
from pipeline.delta.open import open_appender
from pipeline.delta.tail import Position, appended
from pipeline.delta.value_tags import MOST_VALUES, tagged_values, value_tags

SCHEMA = pa.schema({"key": pa.string(), "number": pa.int64()})


def rows(*keys: str | None) -> pa.Table:
    return pa.table({"key": list(keys), "number": list(range(len(keys)))}, schema=SCHEMA)


def file_of(uri: str, version: int) -> str:
    lines = Path(uri, "_delta_log", f"{version:020}.json").read_text().splitlines()
    (path,) = (json.loads(line)["add"]["path"] for line in lines if "add" in line)
    return str(path)


@pytest.mark.parametrize("keys", [("a",), ("a", "b", "a"), (None, "ß😀", 'x"y\\'), (None,)])
def test_a_tag_names_each_value_once(keys: tuple[str | None, ...]) -> None:
    found = tagged_values(value_tags(rows(*keys), "key"), "key")
    assert found is not None
    assert len(found) == len(set(found))
    assert set(found) == set(keys)


def test_many_values_or_long_ones_or_none_are_not_named() -> None:
    most = [str(number) for number in range(MOST_VALUES)]
    assert value_tags(rows(*most), "key")
    assert value_tags(rows(*most, "one more"), "key") == {}
    assert value_tags(rows("x" * 2_000), "key") == {}
    assert value_tags(rows(), "key") == {}


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[]", '["a"', None])
def test_a_tag_of_another_writer_that_says_nothing_is_none(text: str | None) -> None:
    (name,) = value_tags(rows("a"), "key")
    assert tagged_values({name: text}, "key") is None
    assert tagged_values({}, "key") is tagged_values(None, "key") is None


def test_a_reader_opens_the_files_that_have_a_value_of_its_own(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    DeltaTable.create(uri, SCHEMA)
    appender = open_appender(uri, tagged="key")
    for keys in (("a", "b"), ("c",), ("a",), (None, "c")):
        appender.append(rows(*keys))
    write_deltalake(uri, rows("a"), mode="append")  # another writer names nothing
    untagged = open_appender(uri)
    untagged.append(rows("b"))
    looked: list[list[str | None] | None] = []

    def passes_over(_version: int, tags: object) -> bool:
        values = tagged_values(tags, "key")  # type: ignore[arg-type]
        looked.append(values)
        return values is not None and "c" not in values

    # What is passed over is not opened: here it is gone.
    for version in (1, 3):
        Path(uri, file_of(uri, version)).unlink()
    read = list(appended(open_files(uri), Position(1), ["key", "number"], passes_over=passes_over))
    assert [each and each.column("key").to_pylist() for each, _ in read] == [
        None,
        ["c"],
        None,
        None,
        [None, "c"],
        None,
        ["a"],
        None,
        ["b"],
        None,
    ]
    assert [at for _, at in read][-1] == Position(7)
    assert len(looked) == 6


def test_a_part_of_a_commit_that_is_passed_over_ends_where_it_was_planned_to_end(
    tmp_path: Path,
) -> None:
    uri = str(tmp_path / "table")
    DeltaTable.create(uri, SCHEMA)
    open_appender(uri, tagged="key").append(rows("a", "b"))
    end = Position(1, 0, 1)
    files = open_files(uri)
    whole = list(appended(files, Position(1), ["key"], end))
    assert [(each and len(each), at) for each, at in whole] == [(1, end)]
    assert list(appended(files, Position(1), ["key"], end, passes_over=lambda *_: True)) == [
        (None, end)
    ]
