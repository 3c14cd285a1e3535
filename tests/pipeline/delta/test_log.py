"""The next commit of a log: there, not there yet, or cleaned up."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_coordinator.pipeline.delta import identity
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.checkpoint import clean_log
from group_coordinator.pipeline.delta.commit import Commit, NotWhole, txn_action
from group_coordinator.pipeline.delta.followed import TableTail
from group_coordinator.pipeline.delta.log import Log, LogGone, commit_path, open_log
from group_coordinator.pipeline.delta.log_trim import bring, trim_log
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.snapshot import LiveFiles
from group_coordinator.pipeline.delta.storage import CommitStateUnknown
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.table import NOTE, open_delta
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


def trim(folder: Path) -> None:
    """Leave of the log what comes from its newest checkpoint on."""
    clean_log(open_delta(str(folder)))
    trim_log(str(folder), open_delta(str(folder)).version(), grace_s=0)


def test_a_commit_is_missed_also_while_the_one_before_it_is_still_there(folder):
    # A clean-up deletes in any order, and may be in the midst of it.
    before = commit_path(log(folder), 3).read_bytes()
    append(folder, "d", "e")
    trim(folder)
    commit_path(log(folder), 3).write_bytes(before)
    checkpoint = open_log(str(folder)).last_checkpoint()
    assert checkpoint is not None
    assert checkpoint.version == 5
    with pytest.raises(LogGone, match="no longer has version 4"):
        open_log(str(folder)).next_commit(3)
    assert open_log(str(folder)).next_commit(5) is None


def test_a_commit_that_comes_with_a_checkpoint_while_one_looks_is_found(folder, monkeypatch):
    def last(of: Log) -> object:
        monkeypatch.undo()
        append(folder, "d")
        clean_log(open_delta(str(folder)))
        return of.last_checkpoint()

    monkeypatch.setattr(Log, "last_checkpoint", last)
    actions = open_log(str(folder)).next_commit(3)
    assert actions is not None
    assert any(action.add is not None for action in actions)


def test_a_commit_that_is_being_written_in_place_is_waited_for(folder, monkeypatch):
    place = commit_path(log(folder), 4)
    place.write_bytes(b"")
    content = b'{"txn":{"appId":"spark","version":1}}'
    monkeypatch.setattr(
        "group_coordinator.pipeline.delta.log.back_off", lambda _: place.write_bytes(content)
    )
    actions = open_log(str(folder)).next_commit(3)
    assert actions is not None
    assert [action.txn.app_id for action in actions if action.txn is not None] == ["spark"]


def test_a_commit_that_stays_empty_is_named(folder, monkeypatch):
    commit_path(log(folder), 4).write_bytes(b"")
    monkeypatch.setattr("group_coordinator.pipeline.delta.log.back_off", lambda _: None)
    with pytest.raises(Failure, match=r"version 4 of .* is empty"):
        open_log(str(folder)).next_commit(3)


def read_next(folder: Path, version: int) -> None:
    open_log(str(folder)).next_commit(version)


def read_next_in_store(folder: Path, version: int) -> None:
    Log(str(folder), ObjectStore(str(log(folder)))).next_commit(version)


def read_tail(folder: Path, version: int) -> None:
    TableTail(open_files(str(folder)), version, ["request_id"]).poll()


def read_live_files(folder: Path, version: int) -> None:
    live = LiveFiles(str(folder))
    live.version = version
    found = live.look()
    if found is not None and found[0].everything:
        raise LogGone


READERS = [read_next, read_next_in_store, read_tail, read_live_files]


@pytest.mark.parametrize("read", READERS)
def test_where_the_note_of_a_checkpoint_cannot_be_read_the_listing_tells(folder, monkeypatch, read):
    monkeypatch.setattr(identity, "GONE_CHECK_S", 0.0)
    append(folder, "d")
    trim(folder)
    (log(folder) / NOTE).write_bytes(b'{"version"')
    with pytest.raises(LogGone):
        read(folder, 1)
    read(folder, 4)


def test_a_note_that_cannot_be_read_of_a_log_without_checkpoints_says_nothing(folder):
    (log(folder) / NOTE).write_bytes(b"")
    assert open_log(str(folder)).last_checkpoint() is None
    read_next(folder, 3)


def cut_note(note: Path) -> None:
    note.write_bytes(b"{")


def folder_for_note(note: Path) -> None:
    """Whoever reads it has EISDIR, which stands for any error."""
    note.unlink()
    note.mkdir()


@pytest.mark.parametrize("damage", [cut_note, folder_for_note])
def test_a_commit_below_a_checkpoint_of_which_the_note_cannot_be_read_may_be_late(folder, damage):
    before = commit_path(log(folder), 3).read_bytes()
    trim(folder)
    # Another writer's, which is late itself.
    commit_path(log(folder), 1).write_bytes(before)
    damage(log(folder) / NOTE)
    late = Commit([txn_action("app", 1, 0)])
    with pytest.raises(CommitStateUnknown):
        open_log(str(folder)).create(late, 2)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("end", [b"\n", b","], ids=["a line's end", "a field's end"])
def test_a_commit_of_which_a_part_was_read_is_read_again(folder, read, end):
    path = commit_path(log(folder), 3)
    content = path.read_bytes()
    path.write_bytes(content.rpartition(end)[0])
    with pytest.raises(NotWhole):
        read(folder, 2)
    path.write_bytes(content)
    read(folder, 2)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "damage",
    [b'{"add":{"path":"\xff.parquet"}}', b'{"commitInfo":' + b"[" * 100_000],
    ids=["bytes that are no text", "nesting without an end"],
)
def test_a_damaged_commit_is_one_of_which_a_part_was_read(folder, read, damage):
    commit_path(log(folder), 4).write_bytes(damage)
    with pytest.raises(NotWhole):
        read(folder, 3)


@pytest.mark.parametrize(
    "damage",
    [b'{"version":-1,"size":5}', b'{"version":1,"size":5,"tags":' + b"[" * 100_000],
    ids=["no version", "nesting without an end"],
)
def test_a_damaged_note_of_a_checkpoint_says_nothing(folder, damage):
    (log(folder) / NOTE).write_bytes(damage)
    assert open_log(str(folder)).last_checkpoint() is None


def test_what_another_engine_calls_the_number_of_its_actions_is_its_own(folder):
    info = b'{"commitInfo":{"engineInfo":"other","numActions":7}}'
    commit_path(log(folder), 4).write_bytes(info)
    actions = open_log(str(folder)).next_commit(3)
    assert actions is not None
    assert len(actions) == 1


def test_half_of_a_late_commit_is_not_brought(folder):
    path = commit_path(log(folder), 3)
    path.write_bytes(path.read_bytes().rpartition(b"\n")[0])
    with pytest.raises(NotWhole):
        bring(folder, 3)
    assert path.exists()
