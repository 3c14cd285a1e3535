"""Exchanging files of a table on a local disk, beside whoever writes to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from msgspec import structs

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.checkpoint import clean_log
from group_coordinator.pipeline.delta.commit import Bound, Changes, Move
from group_coordinator.pipeline.delta.data_file import DataFile, data_files
from group_coordinator.pipeline.delta.log import commit_path
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.delta.table import ATTEMPTS, open_delta
from group_coordinator.pipeline.delta.table_files import TableFiles
from group_coordinator.pipeline.delta.writer import RewriteConflict, Writer
from group_coordinator.pipeline.errors import Failure
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
    appender = Appender(folder)
    for name in names:
        appender.append(to_arrow(RESPONSES, [response(name)]))


def log(folder: Path) -> Path:
    return folder / "_delta_log"


def writer(folder: Path) -> Writer:
    """A writer that knows the table as it is now."""
    return Writer(str(folder), flushed=False)


def oldest(folder: Path) -> list[DataFile]:
    return data_files(open_delta(str(folder)))[:1]


def names(folder: Path) -> list[str]:
    return sorted(DeltaTable(str(folder)).to_pyarrow_table().column("request_id").to_pylist())


@pytest.mark.slow
def test_however_many_appends_come_first_one_attempt_is_enough(folder):
    mine, files = writer(folder), oldest(folder)
    later = [f"later-{i:03}" for i in range(ATTEMPTS + 10)]
    append(folder, *later)
    assert mine.commit(Changes(remove=files)) == 3 + len(later) + 1
    assert names(folder) == ["b", "c", *later]


def test_an_append_follows_it(folder):
    appender = Appender(folder)
    writer(folder).commit(Changes(remove=oldest(folder)))
    appender.append(to_arrow(RESPONSES, [response("d")]))
    assert names(folder) == ["b", "c", "d"]


def test_of_two_that_remove_the_same_file_the_later_one_changes_nothing(folder):
    first, second, files = writer(folder), writer(folder), oldest(folder)
    first.commit(Changes(remove=files))
    with pytest.raises(RewriteConflict, match=r"another process changed .* meanwhile"):
        second.commit(Changes(remove=files))
    assert open_delta(str(folder)).version() == 4


def test_of_two_that_remove_different_files_both_stand(folder):
    one, other = writer(folder), writer(folder)
    first, second, third = data_files(open_delta(str(folder)))
    one.commit(Changes(remove=[first]))
    other.commit(Changes(remove=[third]))
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
    mine, files = writer(folder), oldest(folder)
    assert writer(folder).commit(Changes(moves=[Move("run", None, 7)])) == 4
    assert mine.commit(Changes(remove=files, moves=[Move("run", None, 7)])) == {"run": 7}
    assert names(folder) == ["a", "b", "c"]


def test_an_identifier_moves_from_what_it_is_said_to_be_and_to_less_too(folder):
    mine = writer(folder)
    assert mine.commit(Changes(moves=[Move("end", None, 7), Move("other", None, 1)])) == 4
    assert mine.commit(Changes(moves=[Move("end", 7, 3), Move("other", 1, 2)])) == 5
    found = mine.commit(Changes(moves=[Move("end", 7, 9), Move("other", 2, 3)]))
    assert found == {"end": 3, "other": 2}, "none of them moved"
    assert writer(folder).snapshot.versions(["end", "other"]) == {"end": 3, "other": 2}


@pytest.mark.parametrize(("at_most", "stands"), [(0, False), (1, True), (2, True)])
def test_nor_does_a_commit_follow_one_that_it_depends_on(folder, at_most, stands):
    mine, files = writer(folder), oldest(folder)
    Appender(folder).append(None, "mark", 1)
    done = mine.commit(Changes(remove=files, bounds=[Bound("mark", at_most)]))
    assert done == (5 if stands else {"mark": 1})
    assert names(folder) == (["b", "c"] if stands else ["a", "b", "c"])


def test_a_run_says_which_one_it_follows(folder, tmp_path):
    files = TableFiles(open_delta(str(folder)), tmp_path)
    for number in (5, 9):
        files.rewrite([], [], {"run": number})
    newest, before = (info["expectedVersions"] for info in files.handle.history(2))
    assert (before, newest) == ({"run": None}, {"run": 5})


def test_a_table_that_was_given_other_properties_is_left_alone(folder):
    mine = writer(folder)
    open_delta(str(folder)).alter.set_table_properties({"delta.logRetentionDuration": "1 days"})
    with pytest.raises(RewriteConflict, match="its metadata was changed"):
        mine.commit(Changes(remove=oldest(folder)))


def trim(folder: Path) -> None:
    """Leave of the log what comes from its newest checkpoint on."""
    clean_log(open_delta(str(folder)))
    trim_log(str(folder), open_delta(str(folder)).version(), grace_s=0)


def test_whoever_slept_while_the_log_was_trimmed_commits_behind_its_end(folder):
    mine, files = writer(folder), oldest(folder)
    append(folder, "d", "e")
    trim(folder)
    assert mine.commit(Changes(remove=files)) == 6
    assert not commit_path(log(folder), 4).exists()
    assert names(folder) == ["b", "c", "d", "e"]


def test_a_path_that_the_log_encodes_is_not_removed_by_its_plain_name(folder):
    Path(folder, "a b.parquet").write_bytes((folder / oldest(folder)[0].path).read_bytes())
    (file,) = oldest(folder)
    mine = writer(folder)
    encoded = structs.replace(file, path="a b.parquet")
    assert mine.commit(Changes(add=[structs.replace(file, path="a%20b.parquet")])) == 4
    with pytest.raises(Failure, match="the log encodes the path"):
        mine.commit(Changes(remove=[encoded]))
