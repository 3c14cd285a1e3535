"""The next commit of a log: there, not there yet, or cleaned up."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_coordinator.pipeline.delta.checkpoint import clean_log
from group_coordinator.pipeline.delta.local_appender import LocalAppender
from group_coordinator.pipeline.delta.log import LogGone, commit_path, last_checkpoint, next_commit
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.delta.table import open_delta
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
    appender = LocalAppender(folder)
    for name in names:
        appender.append(to_arrow(RESPONSES, [response(name)]))


def log(folder: Path) -> Path:
    return folder / "_delta_log"


def trim(folder: Path) -> None:
    """Leave of the log what comes from its newest checkpoint on."""
    clean_log(open_delta(str(folder)))
    trim_log(folder, open_delta(str(folder)).version(), grace_s=0)


def test_a_commit_is_missed_also_while_the_one_before_it_is_still_there(folder):
    # A clean-up deletes in any order, and may be in the midst of it.
    before = commit_path(log(folder), 3).read_bytes()
    append(folder, "d", "e")
    trim(folder)
    commit_path(log(folder), 3).write_bytes(before)
    checkpoint = last_checkpoint(log(folder))
    assert checkpoint is not None
    assert checkpoint.version == 5
    with pytest.raises(LogGone, match="no longer has version 4"):
        next_commit(log(folder), 3)
    assert next_commit(log(folder), 5) is None


def test_a_commit_that_comes_with_a_checkpoint_while_one_looks_is_found(folder, monkeypatch):
    def last(of: Path) -> object:
        monkeypatch.undo()
        append(folder, "d")
        clean_log(open_delta(str(folder)))
        return last_checkpoint(of)

    monkeypatch.setattr("group_coordinator.pipeline.delta.log.last_checkpoint", last)
    actions = next_commit(log(folder), 3)
    assert actions is not None
    assert any(action.add is not None for action in actions)


def test_a_commit_that_is_being_written_in_place_is_waited_for(folder, monkeypatch):
    place = commit_path(log(folder), 4)
    place.write_bytes(b"")
    content = b'{"txn":{"appId":"spark","version":1}}'
    monkeypatch.setattr(
        "group_coordinator.pipeline.delta.log.back_off", lambda _: place.write_bytes(content)
    )
    actions = next_commit(log(folder), 3)
    assert actions is not None
    assert [action.txn.app_id for action in actions if action.txn is not None] == ["spark"]


def test_a_commit_that_stays_empty_is_named(folder, monkeypatch):
    commit_path(log(folder), 4).write_bytes(b"")
    monkeypatch.setattr("group_coordinator.pipeline.delta.log.back_off", lambda _: None)
    with pytest.raises(Failure, match=r"4\.json is empty"):
        next_commit(log(folder), 3)
