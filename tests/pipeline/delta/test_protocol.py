"""A table that asks for more than we write ourselves is written by delta-rs, or refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from msgspec import structs

from group_coordinator.pipeline.delta.data_files import data_files
from group_coordinator.pipeline.delta.local_appender import LocalAppender
from group_coordinator.pipeline.delta.log import commit_path
from group_coordinator.pipeline.delta.open import open_appender
from group_coordinator.pipeline.delta.protocol import UnsupportedTable, writer_features
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.delta.table_files import TableFiles
from tests.pipeline.delta.feature_tables import FEATURES, column, create, protocol

REFUSED_BY_DELTA_RS = ("rowTracking", "inCommitTimestamp", "writer version 6")
WRITTEN_BY_DELTA_RS = [name for name in FEATURES if name not in REFUSED_BY_DELTA_RS]


def numbers(*values: int | None) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def versions(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in (folder / "_delta_log").glob("*.json"))


def engine_of(folder: Path, version: int) -> str:
    line = commit_path(folder / "_delta_log", version).read_text().splitlines()[0]
    return json.loads(line)["commitInfo"]["engineInfo"]


@pytest.mark.parametrize("feature", FEATURES)
def test_the_local_writer_refuses_what_it_does_not_implement(tmp_path, feature):
    folder = create(tmp_path, *FEATURES[feature])
    assert feature in writer_features(open_delta(str(folder)))
    with pytest.raises(UnsupportedTable, match=feature):
        LocalAppender(folder)
    assert versions(folder) == [0]


@pytest.mark.parametrize("feature", WRITTEN_BY_DELTA_RS)
def test_delta_rs_appends_instead(tmp_path, feature):
    folder = create(tmp_path, *FEATURES[feature])
    assert open_appender(str(folder)).append(numbers(5), "application", 0)
    assert not open_appender(str(folder)).append(numbers(5), "application", 0)
    assert engine_of(folder, 1).startswith("delta-rs")


@pytest.mark.parametrize("feature", REFUSED_BY_DELTA_RS)
def test_what_delta_rs_does_not_implement_either_is_refused_by_name(tmp_path, feature):
    folder = create(tmp_path, *FEATURES[feature])
    with pytest.raises(UnsupportedTable, match=feature):
        open_appender(str(folder)).append(numbers(5))
    assert versions(folder) == [0]


def test_a_mapped_column_has_its_physical_name_in_the_file(tmp_path):
    folder = create(tmp_path, *FEATURES["columnMapping"])
    open_appender(str(folder)).append(numbers(5))
    (file,) = folder.glob("**/*.parquet")
    assert pq.read_schema(file).names == ["col-1"]


@pytest.mark.parametrize("feature", ["checkConstraints", "invariants"])
def test_a_row_that_breaks_a_rule_of_the_table_is_refused(tmp_path, feature):
    folder = create(tmp_path, *FEATURES[feature])
    with pytest.raises(DeltaError, match="failed validation"):
        open_appender(str(folder)).append(numbers(50))
    assert versions(folder) == [0]


def test_a_column_that_must_not_be_null_is_an_invariant(tmp_path):
    folder = create(tmp_path, protocol(1, 2), {}, [column(nullable=False)])
    with pytest.raises(DeltaError, match="failed validation"):
        open_appender(str(folder)).append(numbers(None))


def test_a_rule_that_comes_while_the_table_is_open_is_obeyed(tmp_path):
    folder = create(tmp_path, protocol(1, 2))
    appender = open_appender(str(folder))
    assert appender.append(numbers(50), "application", 0)
    DeltaTable(str(folder)).alter.add_constraint({"small": "n < 100"})
    with pytest.raises(DeltaError, match="failed validation"):
        appender.append(numbers(500), "application", 1)
    assert appender.append(numbers(5), "application", 1)
    assert not appender.append(numbers(5), "application", 1)
    rows = DeltaTable(str(folder)).to_pyarrow_table().column("n").to_pylist()
    assert sorted(rows) == [5, 50]
    named = {Path(uri).name for uri in DeltaTable(str(folder)).file_uris()}
    assert {path.name for path in folder.glob("*.parquet")} == named, "no file is left behind"


def test_an_append_only_table_is_appended_to_here_and_loses_no_row(tmp_path):
    folder = create(tmp_path / "table", protocol(1, 2), {"delta.appendOnly": "true"})
    open_appender(str(folder)).append(numbers(5))
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
