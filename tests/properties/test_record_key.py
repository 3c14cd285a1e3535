"""Compaction, the loading of groups, and the views use the same key of a record."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from group_coordinator.coordinator.group.control import decode_control, readable_records
from group_coordinator.coordinator.group.record_helpers import replay
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.monitor.view_statements import read_statements
from group_coordinator.pipeline.node.load_events import offsets_topic_view, write_load_events
from group_coordinator.pipeline.node.table_scan import open_engine
from group_coordinator.pipeline.stream.packed_events import KEY_WIDTH
from group_coordinator.pipeline.upkeep.compaction import compact
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    KNOWN_TYPES,
    OFFSET_COMMIT,
    RECORD_KEY,
    RECORD_VALUES,
    CoordinatorRecord,
    GroupMetadataValue,
    OffsetCommitValue,
)
from tests.examples import examples
from tests.pipeline.node.target import new_target
from tests.pipeline.offsets_log import Log, commit, upkeep

NOW = 1_700_000_000_000
VALUES: dict[str, dict[str, Any]] = {
    OFFSET_COMMIT: {"offset_commit": OffsetCommitValue(1, -1, "", NOW)},
    GROUP_METADATA: {"group_metadata": GroupMetadataValue("", 1, None, None, NOW, ())},
}
KEY = {
    "partition": [0, 1],
    "group_id": ["a", "b"],
    "record_type": [*KNOWN_TYPES, "x", "y"],
    "topic": ["t", "u", None],
    "topic_partition": [0, 1, None],
    "key": [None, b"", b"\0\5"],
}
ROW = st.tuples(*(st.sampled_from(KEY[name]) for name in RECORD_KEY), st.booleans())
# One key, and for each of its columns each key that differs from it only in that column. Then the
# same again, without a value for each second key.
PLAIN = ("partition", 0), ("group_id", "a"), ("record_type", OFFSET_COMMIT), ("topic", "t")
SIDES = [
    tuple(
        {**dict(PLAIN), "topic_partition": 0, "key": None, name: other}[each] for each in RECORD_KEY
    )
    for name in RECORD_KEY
    for other in KEY[name]
]
ALL_SIDES = [(*key, True) for key in SIDES] + [(*key, n % 2 == 0) for n, key in enumerate(SIDES)]
PLACE = attrgetter("partition", "log_offset")

key_of = attrgetter(*RECORD_KEY)


def record(place: int, row: tuple[Any, ...]) -> CoordinatorRecord:
    """Return the record of a row of `ROW`."""
    *key, has_value = row
    named = dict(zip(RECORD_KEY, key, strict=True))
    value = VALUES.get(named["record_type"], {"value": b""}) if has_value else {}
    return CoordinatorRecord(timestamp=NOW, log_offset=place, **named, **value)


def kinds(records: Iterable[CoordinatorRecord]) -> dict[str, str]:
    """Return the unknown kinds of the groups with records of such kinds."""
    found: dict[str, set[str]] = {}
    for each in records:
        if each.record_type not in KNOWN_TYPES and not each.is_tombstone:
            found.setdefault(each.group_id, set()).add(each.record_type)
    return {group_id: ", ".join(sorted(each)) for group_id, each in found.items()}


@examples(10)
@example(rows=ALL_SIDES)
@given(rows=st.lists(ROW, min_size=1, max_size=30))
def test_everybody_finds_the_same_newest_records(empty_root: Path, rows: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(empty_root, root, dirs_exist_ok=True)
        log = Log(root)
        records = [record(place, row) for place, row in enumerate(rows)]
        log.append_rows(records)
        newest = sorted({key_of(each): each for each in records}.values(), key=PLACE)
        catalog = Catalog(root)
        shown = catalog.query('SELECT "partition", log_offset FROM newest_records ORDER BY ALL')
        assert shown.rows == [PLACE(each) for each in newest]
        unknown = kinds(newest)
        assert dict(catalog.query("FROM unknown_groups").rows) == unknown
        loaded = events_of(root)
        groups = {name: replay(name, told) for name, told in loaded.items()}
        assert {
            name: group.unknown_kinds for name, group in groups.items() if group and name in unknown
        } == unknown
        told = [each for name, all_ in loaded.items() if name not in unknown for each in all_]
        expected = [
            each
            for each in newest
            if each.record_type in KNOWN_TYPES
            and not each.is_tombstone
            and each.group_id not in unknown
        ]
        assert sorted(map(PLACE, told)) == [PLACE(each) for each in expected]
        log.roll()
        # In another partition than the others, because the active segment is not compacted.
        log.append_rows([msgspec.structs.replace(commit("c", 1, NOW), partition=9, log_offset=0)])
        assert compact(root, upkeep(), NOW, lambda _: None, force=True).skipped is None
        assert log.read()[:-1] == newest


def events_of(root: str) -> dict[str, list[CoordinatorRecord]]:
    with open_engine() as engine:
        target = new_target(engine)
        files = write_load_events(engine, offsets_topic_view(engine, root), target)
        rows = [row for file in files for row in pq.read_table(target.local(file)).to_pylist()]
    loaded = {}
    for row in rows:
        told, problems = readable_records(decode_control(row["event"][KEY_WIDTH:]).records)  # type: ignore[union-attr]
        assert not problems
        assert row["group_id"] not in loaded
        loaded[row["group_id"]] = told
    return loaded


GROUPS_KEY = {"partition", "group_id"}
IMPLIED = {OFFSET_COMMIT: {"record_type", "key"}, GROUP_METADATA: set(RECORD_KEY) - GROUPS_KEY}


@pytest.mark.parametrize(
    ("view", "kind"),
    [
        ("newest_records", None),
        ("unknown_groups", None),
        ("committed_offsets", OFFSET_COMMIT),
        ("stored_groups", GROUP_METADATA),
        ("offsets_as_of", OFFSET_COMMIT),
        ("offset_history", OFFSET_COMMIT),
    ],
)
def test_a_view_of_the_newest_records_goes_by_the_columns_of_the_key(
    view: str, kind: str | None
) -> None:
    sql = read_statements("views.sql")[view].sql
    (listed, *_) = re.findall(r'(?:GROUP|PARTITION) BY ((?:[\w."]+,\s)+[\w."]+)', sql)
    columns = [each.replace('"', "").rpartition(".")[2] for each in listed.split(", ")]
    implied = IMPLIED.get(str(kind), set())
    assert columns == [name for name in RECORD_KEY if name not in implied]


def test_a_view_knows_the_kinds_and_the_values() -> None:
    sql = read_statements("views.sql")["unknown_groups"].sql
    assert re.findall(r"NOT IN \((.*?)\)", sql) == [", ".join(f"'{each}'" for each in KNOWN_TYPES)]
    assert tuple(re.findall(r'"?(\w+)"? IS NULL', sql)) == RECORD_VALUES
