"""What a record of a row is: key, value, timestamp; and how they are read."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.topics import OffsetOutOfRange, UnknownTopicOrPartition
from group_coordinator.pipeline.topics.row_groups import RowGroupCache
from tests.pipeline.topics.tables import append, caught_up, define, ends, opened, records, rows


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "rows")


# --- values ---------------------------------------------------------------------------------------


def test_a_row_is_one_json_object(root: str, uri: str) -> None:
    append(
        uri,
        pa.table(
            {
                "id": ['é"\n'],
                "f": [float("nan")],
                "g": [0.5],
                "b": [b"\x00\xff"],
                "z": pa.array([1], pa.timestamp("us", "UTC")),
                "d": pa.array([0], pa.date32()),
                "x": [Decimal("1.25")],
                "l": pa.array([[1.5, float("inf"), None]], pa.list_(pa.float64())),
                "s": [{"a": 1, "b": b"q"}],
                "m": pa.array([[("k", 2.5)]], pa.map_(pa.string(), pa.float64())),
                "none": pa.nulls(1, pa.string()),
                "t": [True],
            }
        ),
    )
    define(root, uri, 1)
    (record,) = records(opened(root), 0)
    assert record.value is not None
    assert json.loads(record.value) == {
        "id": 'é"\n',
        "f": None,
        "g": 0.5,
        "b": "AP8=",
        "z": "1970-01-01T00:00:00.000001Z",
        "d": "1970-01-01",
        "x": 1.25,
        "l": [1.5, None, None],
        "s": {"a": 1, "b": "cQ=="},
        "m": {"k": 2.5},
        "none": None,
        "t": True,
    }


def test_a_row_is_the_same_whichever_engine_wrote_its_file(root: str, uri: str) -> None:
    """Spark's timestamps are INT96 without a zone; DuckDB and others write dictionaries."""
    at = pa.array([1_000_000], pa.timestamp("us", "UTC"))
    inner = pa.StructArray.from_arrays([at, pa.array(["q"])], ["at", "s"])
    table = pa.table({"id": ["a"], "at": at, "in": inner, "l": pa.array([["x"]])})
    for _ in range(2):
        append(uri, table)
    (file, _) = Path(uri).glob("*.parquet")
    foreign = table.set_column(0, "id", table.column("id").dictionary_encode())
    pq.write_table(foreign, file, use_deprecated_int96_timestamps=True, store_schema=False)
    define(root, uri, 1, key="id", timestamp="at")
    first, second = records(opened(root), 0)
    assert first.value == second.value
    assert first.value == (
        b'{"id":"a","at":"1970-01-01T00:00:01.000000Z",'
        b'"in":{"at":"1970-01-01T00:00:01.000000Z","s":"q"},"l":["x"]}'
    )
    assert first.timestamp_ms == second.timestamp_ms == 1_000


def test_what_is_not_utf_8_in_a_string_is_replaced(root: str, uri: str) -> None:
    append(uri, rows(range(2)))
    (file,) = Path(uri).glob("*.parquet")
    names = pa.array([b"ok", b"\xffx"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"id": names, "n": [0, 1]}), file)
    define(root, uri, 1)
    found = records(opened(root), 0)
    assert [record.key for record in found] == [b"ok", b"\xffx"]
    values = [record.value for record in found]
    assert values == [b'{"id":"ok","n":0}', '{"id":"\ufffdx","n":1}'.encode()]


def test_a_value_may_be_one_column_and_null_is_a_tombstone(root: str, uri: str) -> None:
    append(uri, pa.table({"id": ["a", "b"], "v": [b"\x01", None], "more": [1, 2]}))
    define(root, uri, 1, key="id", value="v")
    found = records(opened(root), 0)
    assert [(record.key, record.value) for record in found] == [(b"a", b"\x01"), (b"b", None)]


def test_a_column_that_the_table_is_given_later_changes_no_older_record(
    root: str, uri: str
) -> None:
    append(uri, range(2))
    define(root, uri, 1)
    topics = opened(root)
    before = records(topics, 0)
    more = rows([2]).append_column("more", pa.array([7]))
    append(uri, more, schema_mode="merge")
    for each in (caught_up(topics), opened(root)):
        found = records(each, 0)
        assert found[:2] == before
        assert found[2].value == b'{"id":"id-2","n":2,"more":7}'


def test_a_column_that_came_later_has_its_type_for_everybody(root: str, uri: str) -> None:
    append(uri, range(1))
    define(root, uri, 1)
    early = opened(root)
    records(early, 0)
    more = rows([1]).append_column("at", pa.array([0], pa.timestamp("us", "UTC")))
    before = set(Path(uri).glob("*.parquet"))
    append(uri, more, schema_mode="merge")
    (file,) = set(Path(uri).glob("*.parquet")) - before
    pq.write_table(more, file, use_deprecated_int96_timestamps=True, store_schema=False)
    assert records(caught_up(early), 0) == records(opened(root), 0)
    assert records(early, 0)[1].value == (b'{"id":"id-1","n":1,"at":"1970-01-01T00:00:00.000000Z"}')


def test_a_key_or_value_column_that_came_later_is_null_before(root: str, uri: str) -> None:
    append(uri, range(2))
    append(uri, rows([2]).append_column("v", pa.array(["x"])), schema_mode="merge")
    define(root, uri, 1, key="v", value="v")
    assert [(r.key, r.value) for r in records(opened(root), 0)] == [
        (None, None),
        (None, None),
        (b"x", b"x"),
    ]


# --- timestamps -----------------------------------------------------------------------------------


def test_a_record_s_time_is_its_commit_s(root: str, uri: str) -> None:
    for n in range(3):
        append(uri, [n])
    history = reversed(DeltaTable(uri).history())
    times = [commit["timestamp"] for commit in history]
    define(root, uri, 1)
    topics = opened(root)
    assert [record.timestamp_ms for record in records(topics, 0)] == times
    assert topics.offset_for_time("t", 0, times[1]) == (1, times[1])
    assert topics.offset_for_time("t", 0, times[1] + 1) == (2, times[2])
    assert topics.offset_for_time("t", 0, times[2] + 1) is None


@pytest.mark.parametrize("type_", [pa.timestamp("us", "UTC"), pa.int64()])
def test_a_column_may_be_the_time(root: str, uri: str, type_: pa.DataType) -> None:
    unit = 1 if pa.types.is_integer(type_) else 1_000
    for times in ([50, 10], [30, None, -5], [70]):
        column = pa.array([t if t is None else t * unit for t in times], type_)
        append(uri, pa.table({"id": ["a"] * len(times), "at": column}))
    define(root, uri, 1, key="id", timestamp="at")
    topics = opened(root)
    found = [record.timestamp_ms for record in records(topics, 0)]
    now = found[3]
    assert found == [50, 10, 30, now, 0, 70]
    assert now > 1_600_000_000_000, "a row without a time has its commit's"
    ask = [topics.offset_for_time("t", 0, at) for at in (0, 10, 30, 51, now, now + 1)]
    assert ask == [(0, 50), (0, 50), (0, 50), (3, now), (3, now), None]


# --- reading --------------------------------------------------------------------------------------


def test_a_read_keeps_to_its_bounds_but_gives_at_least_one(root: str, uri: str) -> None:
    append(uri, pa.table({"id": ["k"] * 6, "v": ["x" * 99] * 6}))
    define(root, uri, 1, key="id", value="v")
    topics = opened(root)
    for most in (1, 0, -1):
        assert len(topics.read("t", 0, 1, most, 10)) == 1
    assert len(topics.read("t", 0, 1, 10_000, 2)) == 2
    some = topics.read("t", 0, 1, 350, 10)
    assert 1 <= len(some) <= 3
    assert [record.offset for record in some] == list(range(1, 1 + len(some)))
    assert topics.read("t", 0, 6, 100, 10) == []


def test_a_large_row_is_given_alone(root: str, uri: str) -> None:
    append(uri, pa.table({"id": ["a", "b", "c"], "v": ["x", "y" * (20 << 20), "z"]}))
    define(root, uri, 1, key="id", value="v")
    topics = opened(root, cache_bytes=1)
    assert [len(record.value or b"") for record in records(topics, 0)] == [1, 20 << 20, 1]


def test_offsets_and_names_that_do_not_exist_are_named(root: str, uri: str) -> None:
    append(uri, range(3))
    define(root, uri, 1)
    topics = opened(root)
    for offset in (-1, 4):
        with pytest.raises(OffsetOutOfRange, match=f"no offset {offset} in partition 0, only 0 to"):
            topics.read("t", 0, offset, 100, 1)
    for name, number in (("u", 0), ("t", 1), ("t", -1)):
        with pytest.raises(UnknownTopicOrPartition, match="there is no partition"):
            topics.read(name, number, 0, 100, 1)
    assert ends(topics) == [(0, 3)]


def test_an_offset_that_another_process_has_served_is_not_out_of_range(root: str, uri: str) -> None:
    append(uri, range(3))
    define(root, uri, 1)
    behind, ahead = opened(root), opened(root)
    for first in (3, 6):
        append(uri, range(first, first + 3))
        caught_up(ahead)
    assert (behind.log_end("t", 0), ahead.log_end("t", 0)) == (3, 9)
    assert behind.read("t", 0, 9, 100, 9) == []
    assert behind.log_end("t", 0) == 9
    with pytest.raises(OffsetOutOfRange):
        behind.read("t", 0, 10, 100, 9)


def test_a_file_is_decoded_once_for_all_partitions(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(uri, range(60))
    define(root, uri)
    topics = opened(root)
    loads = []
    put = RowGroupCache.put
    monkeypatch.setattr(RowGroupCache, "put", lambda *a: (loads.append(a[1]), put(*a))[1])
    for number in range(3):
        records(topics, number)
    assert len(loads) == 1


def test_the_cache_keeps_to_its_bound() -> None:
    class Held:
        nbytes = 40

    cache = RowGroupCache(100)
    for key in range(3):
        cache.put(key, Held())  # type: ignore[arg-type]
    assert [cache.get(key) is None for key in range(3)] == [True, False, False]


def test_only_the_topics_that_are_asked_for_are_kept(root: str, uri: str) -> None:
    append(uri, range(3))
    define(root, uri)
    assert opened(root, only=["u"]).topics() == {}
    assert opened(root, only=["t"]).topics() == {"t": 3}
