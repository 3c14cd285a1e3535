"""A snapshot follows the log of its table commit by commit, and says what the table says."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from group_coordinator.pipeline.delta.commit import NotWhole
from group_coordinator.pipeline.delta.snapshot import Snapshot


@pytest.fixture
def folder(tmp_path) -> Path:
    DeltaTable.create(str(tmp_path), pa.schema([("n", pa.int64())]))
    return tmp_path


def write(folder: Path, *transactions: Transaction) -> None:
    properties = CommitProperties(app_transactions=list(transactions))
    rows = pa.table({"n": pa.array([1], pa.int64())})
    write_deltalake(str(folder), rows, mode="append", commit_properties=properties)


def agrees(snapshot: Snapshot, folder: Path) -> bool:
    """Whether the snapshot has the version, files and bytes that delta-rs reads."""
    handle = DeltaTable(str(folder))
    files = pa.table(handle.get_add_actions()).select(["path", "size_bytes"]).to_pydict()
    sizes = dict(zip(*files.values(), strict=True))
    seen = (snapshot.state.version, snapshot.state.files, sum(snapshot.state.files.values()))
    return seen == (handle.version(), sizes, sum(sizes.values()))


def test_it_takes_in_appends_and_rewrites_without_reading_the_table_anew(folder, monkeypatch):
    snapshot = Snapshot(str(folder))
    monkeypatch.setattr(snapshot, "_read", None)
    for _ in range(3):
        write(folder)
    snapshot.follow()
    assert len(snapshot.state.files) == 3
    assert agrees(snapshot, folder)
    DeltaTable(str(folder)).optimize.compact()
    DeltaTable(str(folder)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    snapshot.follow()
    assert len(snapshot.state.files) == 1
    assert agrees(snapshot, folder)


def test_it_knows_the_transactions_of_others_once_it_was_asked_for_them(folder):
    snapshot = Snapshot(str(folder))
    assert snapshot.last_version("query") == -1
    write(folder, Transaction("query", 4), Transaction("other", 9))
    assert snapshot.last_version("query") == -1
    snapshot.follow()
    assert snapshot.last_version("query") == 4
    assert snapshot.last_version("other") == 9


def test_it_reads_the_table_anew_where_the_log_was_cleaned_up(folder):
    snapshot = Snapshot(str(folder))
    for _ in range(3):
        write(folder)
    DeltaTable(str(folder)).create_checkpoint()
    for old in range(3):
        (folder / "_delta_log" / f"{old:020}.json").unlink()
    snapshot.follow()
    assert agrees(snapshot, folder)


def test_a_file_that_is_added_once_more_is_one_file(folder):
    """As by a writer that adds statistics to it, with another size if the first was wrong."""
    write(folder)
    snapshot = Snapshot(str(folder))
    (path,) = snapshot.state.files
    add = {"path": path, "partitionValues": {}, "size": 7, "modificationTime": 1}
    commit = folder / "_delta_log" / f"{2:020}.json"
    commit.write_text(json.dumps({"add": {**add, "dataChange": False}}))
    snapshot.follow()
    assert snapshot.state.files == {path: 7}
    assert agrees(snapshot, folder)


def test_a_removal_that_does_not_tell_the_size_is_taken_in_as_any_other(folder, monkeypatch):
    write(folder)
    snapshot = Snapshot(str(folder))
    monkeypatch.setattr(snapshot, "_read", None)
    (path,) = snapshot.state.files
    remove = {"path": path, "deletionTimestamp": 1, "dataChange": True}
    commit = folder / "_delta_log" / f"{2:020}.json"
    commit.write_text(json.dumps({"remove": remove}))
    snapshot.follow()
    assert (snapshot.state.files, sum(snapshot.state.files.values())) == ({}, 0)
    assert agrees(snapshot, folder)


@pytest.mark.parametrize("order", [["add", "remove"], ["remove", "add"]])
def test_a_file_that_one_commit_removes_and_adds_stays_whatever_the_order(folder, order):
    """As by a commit that only changes a file's vector of deleted rows."""
    write(folder)
    snapshot = Snapshot(str(folder))
    (path,) = snapshot.state.files
    actions = {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": 7,
            "modificationTime": 1,
            "dataChange": True,
        },
        "remove": {"path": path, "deletionTimestamp": 1, "dataChange": True},
    }
    commit = folder / "_delta_log" / f"{2:020}.json"
    commit.write_text("\n".join(json.dumps({name: actions[name]}) for name in order))
    snapshot.follow()
    assert (snapshot.state.files, snapshot.state.bytes) == ({path: 7}, 7)


@pytest.mark.parametrize("is_altered", [True, False])
def test_a_new_description_counts_also_where_the_log_was_cleaned_up(folder, is_altered):
    snapshot = Snapshot(str(folder))
    if is_altered:
        DeltaTable(str(folder)).alter.set_table_properties({"delta.appendOnly": "true"})
    else:
        write(folder)
    write(folder)
    DeltaTable(str(folder)).create_checkpoint()
    for old in range(2):
        (folder / "_delta_log" / f"{old:020}.json").unlink()
    snapshot.follow()
    assert snapshot.described == int(is_altered)


def test_a_commit_that_is_away_is_not_the_end_of_the_log(folder):
    for _ in range(3):
        write(folder)
    commit = folder / "_delta_log" / f"{2:020}.json"
    away = commit.rename(folder / "away")
    with pytest.raises(NotWhole, match=r"version 2 of .* is missing, but 3 exists"):
        Snapshot(str(folder))
    away.rename(commit)
    assert agrees(Snapshot(str(folder)), folder)
