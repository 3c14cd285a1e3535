"""Exchanging files of a table on a local disk, beside whoever writes to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable, Transaction

from group_coordinator.pipeline.delta.checkpoint import clean_log
from group_coordinator.pipeline.delta.data_files import data_files
from group_coordinator.pipeline.delta.local_appender import LocalAppender
from group_coordinator.pipeline.delta.log import commit_path
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.delta.rewrite import Rewrite, RewriteConflict, commit_to_log
from group_coordinator.pipeline.delta.table import ATTEMPTS, open_delta
from group_coordinator.pipeline.delta.table_files import TableFiles
from group_coordinator.pipeline.delta.table_log import FolderLog
from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.schemas.tables import RESPONSES, to_arrow
from tests.pipeline.rows import response


@pytest.fixture
def folder(tmp_path) -> Path:
    """A table with three files, of versions 1 to 3."""
    ensure_table(str(tmp_path), RESPONSES)
    folder = tmp_path / "responses"
    append(folder, "a", "b", "c")
    return folder


def append(folder: Path, *names: str) -> None:
    appender = LocalAppender(folder)
    for name in names:
        appender.append(to_arrow(RESPONSES, [response(name)]))


def log(folder: Path) -> Path:
    return folder / "_delta_log"


def commit_locally(folder: Path, version: int, rewrite: Rewrite) -> None:
    commit_to_log(FolderLog(log(folder)), str(folder), version, rewrite)


def names(folder: Path) -> list[str]:
    return sorted(DeltaTable(str(folder)).to_pyarrow_table().column("request_id").to_pylist())


def drop(handle: DeltaTable, **fields: object) -> Rewrite:
    """The rewrite of the oldest file for nothing."""
    return Rewrite(data_files(handle)[:1], [], **fields)


@pytest.mark.slow
def test_however_many_appends_come_first_one_attempt_is_enough(folder):
    handle = open_delta(str(folder))
    later = [f"later-{i:03}" for i in range(ATTEMPTS + 10)]
    append(folder, *later)
    commit_locally(folder, handle.version(), drop(handle))
    after = open_delta(str(folder))
    assert after.version() == handle.version() + len(later) + 1
    assert names(folder) == ["b", "c", *later]


def test_an_append_follows_it(folder):
    appender = LocalAppender(folder)
    handle = open_delta(str(folder))
    commit_locally(folder, handle.version(), drop(handle))
    appender.append(to_arrow(RESPONSES, [response("d")]))
    assert names(folder) == ["b", "c", "d"]


def test_of_two_that_remove_the_same_file_the_later_one_changes_nothing(folder):
    handle = open_delta(str(folder))
    commit_locally(folder, handle.version(), drop(handle))
    with pytest.raises(RewriteConflict, match="rewritten by another process meanwhile"):
        commit_locally(folder, handle.version(), drop(handle))
    assert open_delta(str(folder)).version() == handle.version() + 1


def test_of_two_that_remove_different_files_both_stand(folder):
    handle = open_delta(str(folder))
    first, second, third = data_files(handle)
    commit_locally(folder, handle.version(), Rewrite([first], []))
    commit_locally(folder, handle.version(), Rewrite([third], []))
    assert [file.path for file in data_files(open_delta(str(folder)))] == [second.path]


def test_files_that_are_gone_are_not_replaced_after_a_rewrite_of_others(folder, tmp_path):
    """Two nodes pack at once: what one has packed must not come into the table a second time."""
    one, other = (TableFiles(open_delta(str(folder)), tmp_path) for _ in range(2))
    first, second, third = data_files(one.handle)
    one.rewrite([first], [], data_change=False)
    other.rewrite([third], [], data_change=False)
    with pytest.raises(RewriteConflict, match=first.path):
        other.rewrite([first, second], [second], data_change=False)
    assert names(folder) == ["b"]


def test_a_run_that_another_one_has_made_is_not_made_again(folder):
    handle = open_delta(str(folder))
    commit_locally(folder, handle.version(), Rewrite([], [], [Transaction("run", 7)]))
    with pytest.raises(RewriteConflict, match="run came to version 7"):
        commit_locally(folder, handle.version(), drop(handle, transactions=[Transaction("run", 7)]))
    assert open_delta(str(folder)).transaction_version("run") == 7
    assert names(folder) == ["a", "b", "c"]


def test_nor_does_a_commit_follow_one_that_it_depends_on(folder):
    handle = open_delta(str(folder))
    LocalAppender(folder).append(None, "mark", 1)
    with pytest.raises(RewriteConflict, match="mark came to version 1"):
        commit_locally(folder, handle.version(), drop(handle, expected={"mark": None}))
    assert names(folder) == ["a", "b", "c"]


def test_a_run_says_which_one_it_follows(folder, tmp_path):
    files = TableFiles(open_delta(str(folder)), tmp_path)
    for number in (5, 9):
        files.rewrite([], [], [Transaction("run", number)])
    newest, before = (info["expectedVersions"] for info in files.handle.history(2))
    assert (before, newest) == ({"run": None}, {"run": 5})


def test_a_table_that_was_given_other_properties_is_left_alone(folder):
    handle = open_delta(str(folder))
    open_delta(str(folder)).alter.set_table_properties({"delta.logRetentionDuration": "1 days"})
    with pytest.raises(RewriteConflict, match="its description was changed"):
        commit_locally(folder, handle.version(), drop(handle))


def trim(folder: Path) -> None:
    """Leave of the log what comes from its newest checkpoint on."""
    clean_log(open_delta(str(folder)))
    trim_log(folder, open_delta(str(folder)).version(), grace_s=0)


def test_a_log_that_was_trimmed_meanwhile_gets_no_commit_of_long_ago(folder):
    handle = open_delta(str(folder))
    append(folder, "d", "e")
    trim(folder)
    with pytest.raises(RewriteConflict, match="no longer has version 4"):
        commit_locally(folder, handle.version(), drop(handle))
    assert not commit_path(log(folder), 4).exists()


def test_paths_that_the_log_encodes_are_known(folder):
    handle = open_delta(str(folder))
    assert drop(handle).is_plain
    (file,) = drop(handle).removed
    assert not Rewrite([type(file)("a b.parquet", 1, 1, 1)], []).is_plain
