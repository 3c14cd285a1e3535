"""An append's file has the order, the row groups and the tags that its table's layout gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from group_coordinator.pipeline.delta import tail
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.commit import parse_commit
from group_coordinator.pipeline.delta.data_file import Layout
from group_coordinator.pipeline.delta.followed import follow
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.tail import Position, Wanted, appended

SCHEMA = pa.schema({"key": pa.string(), "number": pa.int64()})
FIRST = Position(1)


def rows(*keys: str) -> pa.Table:
    return pa.table({"key": list(keys), "number": list(range(len(keys)))}, SCHEMA)


def by_key(found: pa.Table) -> Layout:
    """A row group for each key, and a tag that names the keys in their order."""
    keys = sorted(set(found.column("key").to_pylist()))
    parts = [found.filter(pa.compute.equal(found.column("key"), key)) for key in keys]
    return Layout(pa.concat_tables(parts), {"keys": ",".join(keys)}, [len(each) for each in parts])


def wants(*mine: str) -> Wanted:
    def wanted(_version: int, tags: Mapping[str, str | None] | None) -> Sequence[bool] | None:
        keys = (tags or {}).get("keys")
        return None if keys is None else [key in mine for key in keys.split(",")]

    return wanted


@pytest.fixture
def uri(tmp_path: Path) -> str:
    DeltaTable.create(str(tmp_path / "table"), SCHEMA)
    return str(tmp_path / "table")


def file_of(uri: str, version: int) -> Path:
    actions = parse_commit((Path(uri) / f"_delta_log/{version:020}.json").read_bytes())
    (path,) = [each.add.path for each in actions if each.add is not None]
    return Path(uri, path)


def read(
    uri: str, wanted: Wanted, start: Position = FIRST, end: Position | None = None
) -> list[tuple[list[str] | None, Position]]:
    found = appended(open_files(uri), start, ["key", "number"], end, wanted=wanted)
    return [(page and page.column("key").to_pylist(), at) for page, at in found]


def test_a_reader_opens_the_files_that_have_something_for_it(uri: str) -> None:
    appender = Appender(uri, lay_out=by_key)
    for keys in (("a", "b"), ("c",), ("a",), ("c", "d")):
        appender.append(rows(*keys))
    write_deltalake(uri, rows("a"), mode="append")  # another writer's file has no tag
    for version in (1, 3):
        file_of(uri, version).unlink()  # what is not opened may as well be gone
    assert read(uri, wants("c")) == [
        (None, Position(2)),
        (["c"], Position(2, 1)),
        (None, Position(3)),
        (None, Position(4)),
        (["c"], Position(4, 1)),
        (None, Position(5)),
        (["a"], Position(5, 1)),
        (None, Position(6)),
    ]


def test_wanted_row_groups_are_read_at_once_and_the_others_not_at_all(uri: str) -> None:
    Appender(uri, lay_out=by_key).append(rows("c", "a", "b", "c", "d"))
    assert pq.read_metadata(file_of(uri, 1)).num_row_groups == 4
    assert read(uri, wants("a", "c")) == [(["a", "c", "c"], Position(1, 3)), (None, Position(2))]
    everything = [(["a", "b", "c", "c", "d"], Position(1, 4)), (None, Position(2))]
    assert read(uri, wants("a", "b", "c", "d")) == everything


def test_no_more_is_read_at_once_than_its_bound(uri: str, monkeypatch) -> None:
    Appender(uri, lay_out=by_key).append(rows("a", "b", "c"))
    monkeypatch.setattr(tail, "_AT_ONCE_BYTES", 1)
    assert [keys for keys, _ in read(uri, wants("a", "c"))] == [["a"], ["c"], None]


def test_reading_begins_and_ends_wherever_it_was_planned_to(uri: str) -> None:
    """The positions count row groups that are not wanted, too: whoever reads on may want them."""
    Appender(uri, lay_out=by_key).append(rows("a", "b", "b", "c", "c", "d"))
    whole = ["a", "b", "b", "c", "c", "d"]
    places = [Position(1, group, row) for group, row in ((0, 0), (1, 0), (1, 1), (2, 0), (2, 1))]
    places += [Position(1, 3), Position(1, 4), Position(2)]
    first_rows = [0, 1, 2, 3, 4, 5, 6, 6]
    for begin, start in enumerate(places):
        for stop, end in list(enumerate(places))[begin + 1 :]:
            between = whole[first_rows[begin] : first_rows[stop]]
            for mine in ("abcd", "ac", "bd", "d"):
                found = read(uri, wants(*mine), start, end)
                keys = [key for page, _ in found for key in page or ()]
                assert [each for each in keys if each in mine] == [k for k in between if k in mine]
                assert found[-1][1] == end


def test_a_tail_has_the_columns_of_all_files_that_it_reads(uri: str) -> None:
    tail_of_it = follow(uri, ["key", "number"])
    Appender(uri, lay_out=lambda found: Layout(found.select(["key"]))).append(rows("a"))
    Appender(uri).append(rows("b"))
    found = tail_of_it.poll()
    assert found is not None
    assert found.to_pydict() == {"key": ["a", "b"], "number": [None, 0]}


def test_a_tag_of_other_row_groups_than_the_file_has_counts_for_nothing(uri: str) -> None:
    def wrong(found: pa.Table) -> Layout:
        return by_key(found)._replace(row_groups=[len(found)])

    Appender(uri, lay_out=wrong).append(rows("a", "b"))
    assert read(uri, wants("a"))[0] == (["a", "b"], Position(1, 1))


def test_a_part_of_a_commit_that_is_passed_over_ends_where_it_was_planned_to_end(uri: str) -> None:
    Appender(uri, lay_out=by_key).append(rows("a", "a"))
    end = Position(1, 0, 1)
    assert read(uri, wants("a"), end=end) == [(["a"], end)]
    assert read(uri, wants("b"), end=end) == [(None, end)]
