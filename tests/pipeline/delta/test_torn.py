"""After a loss of power: what is torn is named, and voided without moving any other version."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from group_coordinator.pipeline.delta import torn
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.checkpoint import clean_log
from group_coordinator.pipeline.delta.followed import follow
from group_coordinator.pipeline.delta.log import commit_path
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.delta.torn import (
    CHECKPOINT,
    COMMIT,
    KEPT,
    TornTable,
    check_whole,
    find_torn,
    mend,
)
from group_coordinator.pipeline.errors import Failure


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torn, "CONFIRM_S", 0.0)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table whose versions 1 to 4 have a row each, of the versions 0 to 3 of an application."""
    DeltaTable.create(str(tmp_path), pa.schema([("n", pa.int64())]))
    appender = Appender(tmp_path)
    for n in range(1, 5):
        appender.append(numbers(n), "query", n - 1)
    return tmp_path


def commit(table: Path, version: int) -> Path:
    return commit_path(table / "_delta_log", version)


def data_file(table: Path, version: int) -> Path:
    handle = DeltaTable(str(table), version=version)
    before = set(DeltaTable(str(table), version=version - 1).file_uris())
    (added,) = set(handle.file_uris()) - before
    return table / Path(added).name


def torn_versions(table: Path) -> list[tuple[str, int]]:
    return [(each.kind, each.version) for each in find_torn(table)]


def rows(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table().column("n").to_pylist())


def truncate(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def rewrite_add(table: Path, **fields: object) -> None:
    """Change what commit 4 says of the file that it adds; it is no commit of ours then."""
    lines = [json.loads(line) for line in commit(table, 4).read_text().splitlines()]
    (added,) = (line["add"] for line in lines if "add" in line)
    added |= fields
    added = {name: value for name, value in added.items() if value is not None}
    commit(table, 4).write_text(json.dumps({"add": added}))


DAMAGES = {
    "an empty commit": (lambda table: truncate(commit(table, 4), 0), "empty or truncated"),
    "a damaged commit": (
        lambda table: commit(table, 4).write_bytes(b'{"add":{"path":"\xff"}}'),
        "empty or truncated",
    ),
    "a cut commit": (lambda table: truncate(commit(table, 4), 0.6), "empty or truncated"),
    "zeros for a commit": (
        lambda table: commit(table, 4).write_bytes(bytes(300)),
        "empty or truncated",
    ),
    "a file of another table": (lambda table: rewrite_add(table, path="../other"), "lies outside"),
    "a file at an address": (
        lambda table: rewrite_add(table, path="s3://other/file"),
        "lies outside",
    ),
    "a file without a size": (lambda table: rewrite_add(table, size=None), "has no size"),
    "an empty data file": (lambda table: truncate(data_file(table, 4), 0), "has 0 bytes"),
    "a cut data file": (lambda table: truncate(data_file(table, 4), 0.5), "bytes, not"),
    "no data file": (lambda table: data_file(table, 4).unlink(), "is missing"),
    "zeros for a data file": (
        lambda table: data_file(table, 4).write_bytes(bytes(data_file(table, 4).stat().st_size)),
        "is truncated",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_torn_last_commit_is_named_and_voided(table, damage):
    tear, why = DAMAGES[damage]
    tear(table)
    with pytest.raises(TornTable, match=rf"commit 4: .*{why}"):
        check_whole(table)
    assert torn_versions(table) == [(COMMIT, 4)]
    assert [(each.kind, each.version) for each in mend(table, find_torn(table))] == [(COMMIT, 4)]
    assert mend(table, find_torn(table)) == []
    assert rows(table) == [1, 2, 3]
    assert (table / KEPT / f"{4:020}.json").exists()
    appender = Appender(table)
    assert appender.last_version("query") == 2, "what the commit wrote may be written again"
    assert appender.append(numbers(4), "query", 3)
    assert open_delta(str(table)).version() == 5
    assert rows(table) == [1, 2, 3, 4]


@pytest.mark.parametrize(("content", "found"), [(b"{}", []), (b"", [(CHECKPOINT, 4)])])
def test_a_delta_checkpoint_may_be_json(table, content, found):
    """As that of a table with v2Checkpoint, whose note names a file of another name."""
    (table / f"_delta_log/{4:020}.checkpoint.5d2c.json").write_bytes(content)
    note = table / "_delta_log/_last_checkpoint"
    note.write_text('{"version": 4, "size": 8}')
    assert torn_versions(table) == found
    mend(table, find_torn(table))
    assert torn_versions(table) == []
    assert note.exists() == (not found)


@pytest.mark.parametrize("flushed", [False, True])
def test_a_commit_that_is_cut_at_any_byte_is_torn(tmp_path, flushed):
    """At a line's end, too: what is left of it are whole actions, and its rows would be lost."""
    folder = tmp_path / "other"
    DeltaTable.create(str(folder), pa.schema([("n", pa.int64())]))
    Appender(folder, flushed=flushed).append(numbers(1), "query", 0)
    content = commit(folder, 1).read_bytes()
    assert content.count(b"\n") == 2
    for size in range(len(content)):
        commit(folder, 1).write_bytes(content[:size])
        assert torn_versions(folder) == [(COMMIT, 1)], size
    commit(folder, 1).write_bytes(content)
    check_whole(folder)


def test_a_reader_meets_no_version_twice(table):
    tail = follow(str(table), ["n"])
    truncate(commit(table, 4), 0)
    mend(table, find_torn(table))
    Appender(table).append(numbers(5))
    found = tail.poll()
    assert found is not None
    assert found.column("n").to_pylist() == [5]


def test_a_commit_that_is_missing_below_a_later_one_is_voided(table):
    commit(table, 3).unlink()
    assert torn_versions(table) == [(COMMIT, 3)]
    mend(table, find_torn(table))
    assert rows(table) == [1, 2, 4]


def test_a_file_of_which_a_commit_does_not_say_the_size_is_named(table):
    """What is not said is not 0 bytes, but delta-rs opens no such table."""
    content = commit(table, 4).read_bytes()
    size = data_file(table, 4).stat().st_size
    assert content.count(b'"size":%d,' % size) == 1
    commit(table, 4).write_bytes(content.replace(b'"size":%d,' % size, b""))
    (found,) = find_torn(table)
    assert (found.kind, found.version) == (COMMIT, 4)
    assert "has no size in the log" in found.why


def test_a_file_that_a_later_commit_removed_may_be_gone(table):
    handle = DeltaTable(str(table))
    handle.optimize.compact()
    handle.vacuum(0, dry_run=False, enforce_retention_duration=False)
    check_whole(table)


def test_only_what_no_checkpoint_holds_is_looked_at(table):
    clean_log(open_delta(str(table)))
    for version in range(5):
        commit(table, version).unlink(missing_ok=True)
    check_whole(table)
    Appender(table).append(numbers(5))
    truncate(commit(table, 5), 0)
    assert torn_versions(table) == [(COMMIT, 5)]


def test_a_whole_table_is_whole_also_without_a_note_of_its_checkpoint(table):
    clean_log(open_delta(str(table)))
    commit(table, 0).unlink()
    (table / "_delta_log" / "_last_checkpoint").unlink()
    check_whole(table)


def test_a_table_that_lost_its_first_commit_is_not_made_up(table):
    truncate(commit(table, 0), 0)
    with pytest.raises(Failure, match=r"metadata of .* is lost"):
        mend(table, find_torn(table))


CHECKPOINT_DAMAGES = {
    "cut": lambda file: truncate(file, 0.5),
    "empty": lambda file: truncate(file, 0),
    "missing": Path.unlink,
}


@pytest.mark.parametrize("damage", CHECKPOINT_DAMAGES)
@pytest.mark.parametrize("earlier", [False, True], ids=["the first", "a later one"])
def test_a_torn_checkpoint_is_taken_away_while_its_commits_are_there(table, damage, earlier):
    if earlier:
        DeltaTable(str(table), version=2).create_checkpoint()
        commit(table, 0).unlink()
    DeltaTable(str(table)).create_checkpoint()
    CHECKPOINT_DAMAGES[damage](table / "_delta_log" / f"{4:020}.checkpoint.parquet")
    with pytest.raises(DeltaError):
        DeltaTable(str(table))
    assert torn_versions(table) == [(CHECKPOINT, 4)]
    mend(table, find_torn(table))
    check_whole(table)
    assert rows(table) == [1, 2, 3, 4]


def test_a_torn_checkpoint_whose_commits_are_gone_is_not_made_up(table):
    DeltaTable(str(table)).create_checkpoint()
    commit(table, 0).unlink()
    truncate(table / "_delta_log" / f"{4:020}.checkpoint.parquet", 0.5)
    with pytest.raises(Failure, match=r"metadata of .* is lost"):
        mend(table, find_torn(table))


# --- beside writers -------------------------------------------------------------------------------


Names = list[str]


def listed(monkeypatch: pytest.MonkeyPatch, *looks: Callable[[Names], Names]) -> None:
    """Have the next listings of the log return what each of the looks makes of them."""
    left, list_folder = list(looks), os.listdir

    def listing(folder: Path) -> Names:
        names = list_folder(folder)
        return left.pop(0)(names) if left else names

    monkeypatch.setattr(os, "listdir", listing)


def without(version: int) -> Callable[[Names], Names]:
    """A listing that passed by where a commit's name is before the commit was created."""
    return lambda names: [name for name in names if name != commit_path(Path(), version).name]


def test_a_commit_that_a_listing_missed_beside_a_later_one_is_not_torn(table, monkeypatch):
    listed(monkeypatch, without(3))
    check_whole(table)
    listed(monkeypatch, without(3))
    assert mend(table, find_torn(table)) == []
    assert rows(table) == [1, 2, 3, 4]


def test_what_was_cleaned_up_between_the_listing_and_the_reading_is_not_torn(table, monkeypatch):
    def then_clean_up(names: Names) -> Names:
        handle = DeltaTable(str(table))
        handle.create_checkpoint()
        for version in range(5):
            commit(table, version).unlink()
        return names

    listed(monkeypatch, then_clean_up)
    check_whole(table)


def test_a_checkpoint_that_came_after_the_listing_is_not_torn(table, monkeypatch):
    def then_checkpoint(names: Names) -> Names:
        DeltaTable(str(table)).create_checkpoint()
        return names

    listed(monkeypatch, then_checkpoint)
    check_whole(table)


def test_a_file_that_was_removed_and_vacuumed_after_the_listing_is_not_torn(table, monkeypatch):
    def then_vacuum(names: Names) -> Names:
        handle = DeltaTable(str(table))
        handle.optimize.compact()
        handle.vacuum(0, dry_run=False, enforce_retention_duration=False)
        return names

    listed(monkeypatch, then_vacuum)
    check_whole(table)


def test_only_what_a_later_look_finds_too_is_voided(table, monkeypatch):
    truncate(commit(table, 4), 0)
    found = find_torn(table)
    listed(monkeypatch, without(2))
    assert torn_versions(table) == [(COMMIT, 4)], "each look may err in another commit"
    listed(monkeypatch, without(2))
    assert [each.version for each in mend(table, found)] == [4]
    assert rows(table) == [1, 2, 3]


def test_a_commit_that_was_filled_after_it_was_found_torn_stays(table):
    content = commit(table, 4).read_bytes()
    truncate(commit(table, 4), 0)
    found = find_torn(table)
    commit(table, 4).write_bytes(content)
    assert mend(table, found) == []
    assert rows(table) == [1, 2, 3, 4]


def test_the_second_look_is_a_later_one(table, monkeypatch):
    """A file that is created in place is empty for a moment."""
    content = commit(table, 4).read_bytes()
    truncate(commit(table, 4), 0)
    monkeypatch.setattr(torn, "sleep", lambda _seconds: commit(table, 4).write_bytes(content))
    check_whole(table)


def test_the_rows_of_a_voided_commit_are_kept_aside(table: Path) -> None:
    content = data_file(table, 4).read_bytes()
    name = data_file(table, 4).name
    rewrite_add(table, size=None)
    mend(table, find_torn(table))
    assert (table / KEPT / name).read_bytes() == content
    assert (table / KEPT / commit(table, 4).name).exists()
