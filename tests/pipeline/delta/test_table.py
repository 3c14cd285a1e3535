"""How tables are opened: beside writers, and on which disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from group_coordinator.pipeline.delta import table as delta
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.followed import TableFollower
from group_coordinator.pipeline.delta.log import commit_path
from group_coordinator.pipeline.delta.table import local_folder, newest_version, open_delta, refresh
from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.schemas.tables import RESPONSES, to_arrow
from tests.pipeline.rows import response


@pytest.fixture
def folder(tmp_path) -> Path:
    """A table of version 1, with its checksum."""
    ensure_table(str(tmp_path), RESPONSES)
    folder = tmp_path / "responses"
    Appender(folder).append(to_arrow(RESPONSES, [response("a")]))
    return folder


def come_too_early(folder: Path) -> Path:
    """Leave the checksum of version 2 as a reader sees it that has not listed its commit."""
    early = folder / "_delta_log" / f"{2:020}.crc"
    shutil.copy(folder / "_delta_log" / f"{1:020}.crc", early)
    return early


def test_a_checksum_that_comes_before_its_commit_is_waited_for(folder, monkeypatch):
    handle = DeltaTable(str(folder), version=0)
    early = come_too_early(folder)
    monkeypatch.setattr(delta, "back_off", lambda _attempt: early.unlink())
    assert open_delta(str(folder)).version() == 1
    come_too_early(folder)
    refresh(handle)
    assert handle.version() == 1
    assert not early.exists()


def test_the_newest_version_may_have_a_checkpoint_and_no_commit_any_more(folder):
    come_too_early(folder)
    assert newest_version(str(folder)) == 1
    (folder / "_delta_log" / f"{2:020}.crc").unlink()
    DeltaTable(str(folder)).create_checkpoint()
    (folder / "_delta_log" / f"{1:020}.json").unlink()
    assert newest_version(str(folder)) == DeltaTable(str(folder)).version() == 1


def test_a_commit_that_is_listed_before_an_earlier_one_is_waited_for(folder, monkeypatch):
    handle = DeltaTable(str(folder), version=0)
    Appender(folder).append(to_arrow(RESPONSES, [response("b")]))
    earlier = folder / "_delta_log" / f"{1:020}.json"
    content = earlier.read_bytes()
    monkeypatch.setattr(delta, "back_off", lambda _attempt: earlier.write_bytes(content))
    earlier.unlink()
    assert open_delta(str(folder)).version() == 2
    earlier.unlink()
    refresh(handle)
    assert handle.version() == 2


@contextmanager
def not_filled_yet(folder: Path, version: int) -> Iterator[None]:
    """Have a commit be empty in the block, as one that its writer creates in place."""
    place = commit_path(folder / "_delta_log", version)
    content = place.read_bytes()
    place.write_bytes(b"")
    yield
    place.write_bytes(content)


def test_a_commit_that_is_not_filled_yet_is_no_version_yet(folder):
    """delta-rs takes it for one that does nothing, and reads it no more when it is filled."""
    handle = DeltaTable(str(folder), version=0)
    with not_filled_yet(folder, 1):
        opened = open_delta(str(folder))
        refresh(handle)
        found = [opened.version(), handle.version(), newest_version(str(folder))]
        assert found == [0, 0, 0]
    for each in (opened, handle):
        refresh(each)
        assert (each.version(), each.to_pyarrow_table().num_rows) == (1, 1)


def test_what_a_checkpoint_holds_needs_no_commit(folder):
    DeltaTable(str(folder)).create_checkpoint()
    commit_path(folder / "_delta_log", 0).unlink()
    with not_filled_yet(folder, 1):
        assert open_delta(str(folder)).version() == newest_version(str(folder)) == 1


def test_a_follower_does_not_pass_over_a_commit_that_is_not_filled_yet(folder):
    follower = TableFollower(
        str(folder), ["request_id"], lambda _known, rows, _is_whole: rows.num_rows, lambda: True
    )
    with not_filled_yet(folder, 1):
        follower.poll()
        assert follower.known == 0
    follower.poll()
    assert follower.known == 1


def test_a_checksum_without_a_commit_is_an_error_in_the_end(folder, monkeypatch):
    come_too_early(folder)
    waited: list[int] = []
    monkeypatch.setattr(delta, "back_off", waited.append)
    monkeypatch.setattr(delta, "ATTEMPTS", 3)
    with pytest.raises(DeltaError, match="CRC file version 2"):
        open_delta(str(folder))
    assert waited == [0, 1]


def test_what_cannot_be_opened_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(delta, "back_off", None)
    with pytest.raises(DeltaError):
        open_delta(str(tmp_path))


def test_uris_of_local_folders():
    assert local_folder("/a/b") == Path("/a/b")
    assert local_folder("file:///a/b%20c") == Path("/a/b c")
    assert local_folder("s3://bucket/a") is None
