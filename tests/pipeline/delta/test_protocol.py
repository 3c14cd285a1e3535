"""A table that asks for more than is written here is refused by the name of what it asks for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from msgspec import structs

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.commit import NotWhole, parse_commit
from group_coordinator.pipeline.delta.data_file import data_files
from group_coordinator.pipeline.delta.log import commit_path
from group_coordinator.pipeline.delta.protocol import UnsupportedTable
from group_coordinator.pipeline.delta.snapshot import Snapshot
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.delta.table_files import TableFiles
from tests.pipeline.delta.feature_tables import FEATURES, column, create, protocol


def numbers(*values: int | None) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def versions(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in (folder / "_delta_log").glob("*.json"))


def engine_of(folder: Path, version: int) -> str:
    line = commit_path(folder / "_delta_log", version).read_text().splitlines()[0]
    return json.loads(line)["commitInfo"]["engineInfo"]


@pytest.mark.parametrize("feature", [name for name in FEATURES if name != "changeDataFeed"])
def test_what_is_not_implemented_is_refused_by_name(tmp_path, feature):
    folder = create(tmp_path, *FEATURES[feature])
    assert feature in Snapshot(str(folder)).features
    with pytest.raises(UnsupportedTable, match=feature):
        Appender(folder)
    assert versions(folder) == [0]


def test_a_column_that_must_not_be_null_is_an_invariant(tmp_path):
    folder = create(tmp_path, protocol(1, 2), {}, [column(nullable=False)])
    with pytest.raises(UnsupportedTable, match="invariants"):
        Appender(folder)


@pytest.mark.parametrize(
    ("asks", "listed"),
    [(protocol(1, 4), ()), (protocol(1, 7, "appendOnly", "invariants", "changeDataFeed"), ())],
    ids=["by its version", "by name"],
)
def test_an_analyst_who_switches_the_change_data_feed_on_stops_nobody(tmp_path, asks, listed):
    """What a commit that only adds files changed is read from these files."""
    folder = create(tmp_path / "t", asks, {"delta.enableChangeDataFeed": "true"})
    appender = Appender(folder)
    assert appender.append(numbers(1), "application", 0)
    assert appender.append(numbers(2), "application", 1)
    feed = DeltaTable(str(folder)).load_cdf(1)
    feed = pa.table(feed.read_all()).to_pydict()
    assert sorted(zip(feed["n"], feed["_change_type"], strict=True)) == [
        (1, "insert"),
        (2, "insert"),
    ]
    files = TableFiles(open_delta(str(folder)), tmp_path)
    first, second = data_files(files.handle)
    with pytest.raises(UnsupportedTable, match="changeDataFeed"):
        files.rewrite([first], [structs.replace(first, path="other.parquet")])
    files.rewrite([first], [])
    assert DeltaTable(str(folder)).file_uris() == [str(folder / second.path)]


def test_a_rule_that_comes_while_the_table_is_open_is_obeyed(tmp_path):
    folder = create(tmp_path, protocol(1, 2))
    appender = Appender(folder)
    assert appender.append(numbers(50), "application", 0)
    DeltaTable(str(folder)).alter.add_constraint({"small": "n < 100"})
    with pytest.raises(UnsupportedTable, match="checkConstraints"):
        appender.append(numbers(500), "application", 1)
    named = {Path(uri).name for uri in DeltaTable(str(folder)).file_uris()}
    assert {path.name for path in folder.glob("*.parquet")} == named, "no file is left behind"


def test_an_append_only_table_is_appended_to_here_and_loses_no_row(tmp_path):
    folder = create(tmp_path / "table", protocol(1, 2), {"delta.appendOnly": "true"})
    Appender(str(folder)).append(numbers(5))
    assert engine_of(folder, 1) == "group-coordinator"
    handle = open_delta(str(folder))
    with pytest.raises(UnsupportedTable, match="appendOnly"):
        TableFiles(handle, tmp_path).rewrite(data_files(handle), [])
    (file,) = data_files(handle)
    packed = structs.replace(file, path="packed.parquet")
    shutil.copy(folder / file.path, folder / packed.path)
    TableFiles(handle, tmp_path).rewrite([file], [packed], data_change=False)
    assert DeltaTable(str(folder)).to_pyarrow_table().num_rows == 1


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping"])
def test_files_that_do_not_hold_the_rows_as_they_are_are_not_read(tmp_path, feature):
    folder = create(tmp_path / "table", *FEATURES[feature])
    with pytest.raises(UnsupportedTable, match=f"{feature}|reader version 2"):
        TableFiles(open_delta(str(folder)), tmp_path)


@pytest.mark.parametrize(
    "action",
    [
        {"metaData": {"configuration": ["delta.appendOnly"]}},
        {"metaData": {"configuration": {"delta.appendOnly": True}}},
        {"metaData": {"partitionColumns": "p"}},
        {"metaData": {"partitionColumns": [1]}},
        {"metaData": {"schemaString": 7}},
        {"metaData": {"schemaString": "{"}},
        {"metaData": {"schemaString": '{"fields": [{"name": "n", "type": "long"}]}'}},
        {"metaData": {"schemaString": '{"fields": [{"name": "n", "type": {"fields": 7}}]}'}},
        {"protocol": {"writerFeatures": "appendOnly"}},
        {"protocol": {"minWriterVersion": "7"}},
    ],
)
def test_a_description_that_is_none_is_a_damaged_commit(action: dict[str, object]) -> None:
    """Not an error of another kind, later, in whoever asks for a property of the table."""
    with pytest.raises(NotWhole, match="damaged"):
        parse_commit(json.dumps(action).encode())
