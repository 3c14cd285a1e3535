"""A store that does what it was asked and says that it failed: no row is lost, and none doubled."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.delta import storage
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.commit import Changes
from group_coordinator.pipeline.delta.data_file import data_files
from group_coordinator.pipeline.delta.log import commit_name, commit_path
from group_coordinator.pipeline.delta.storage import CommitStateUnknown
from group_coordinator.pipeline.delta.writer import AppendConflict, Writer

NFS_REPEATED = FileExistsError(errno.EEXIST, "the link was sent again, and found itself")
BROKEN_DISK = OSError(errno.EIO, "Input/output error")
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    DeltaTable.create(str(tmp_path), pa.schema([("n", pa.int64())]))
    return tmp_path


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def rows(folder: Path) -> list[int]:
    return sorted(DeltaTable(str(folder)).to_pyarrow_table().column("n").to_pylist())


def files(folder: Path) -> int:
    return len(list(folder.glob("*.parquet")))


class Once:
    """Stands in for a function: the first call does its work, if it may, and raises the error."""

    def __init__(self, function: Callable[..., Any], error: BaseException, works: bool = True):
        self.function, self.error, self.works = function, error, works
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.calls > 1:
            return self.function(*args, **kwargs)
        if self.works:
            self.function(*args, **kwargs)
        raise self.error


def break_link(monkeypatch: pytest.MonkeyPatch, error: BaseException, works: bool = True) -> None:
    monkeypatch.setattr(storage.os, "link", Once(os.link, error, works))


# --- in a local folder --------------------------------------------------------------------------


@pytest.mark.parametrize("error", [NFS_REPEATED, BROKEN_DISK], ids=["nfs", "eio"])
def test_an_append_whose_link_is_there_has_succeeded(folder, monkeypatch, error):
    appender = Appender(folder)
    break_link(monkeypatch, error)
    assert appender.append(numbers(1), "query", 0)
    assert appender.append(numbers(2), "query", 1)
    assert rows(folder) == [1, 2]
    assert not list((folder / "_delta_log").glob(".*"))


def test_an_append_that_is_interrupted_after_its_link_keeps_its_file(folder, monkeypatch):
    appender = Appender(folder)
    break_link(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        appender.append(numbers(1), "query", 0)
    assert rows(folder) == [1]
    assert not appender.append(numbers(1), "query", 0), "what stands is not written again"
    assert rows(folder) == [1]
    assert files(folder) == 1


def test_an_append_whose_outcome_cannot_be_read_says_so_and_keeps_its_file(folder, monkeypatch):
    appender = Appender(folder)
    break_link(monkeypatch, BROKEN_DISK, works=False)
    with pytest.raises(CommitStateUnknown, match=r"version 1 .*Input/output error"):
        appender.append(numbers(1), "query", 0)
    assert files(folder) == 1
    assert appender.append(numbers(1), "query", 0)
    assert rows(folder) == [1]


def test_an_append_that_is_there_and_cannot_be_read_says_so_and_keeps_its_file(folder, monkeypatch):
    appender = Appender(folder)
    break_link(monkeypatch, BROKEN_DISK, works=True)
    read = storage.Disk.read

    def unreadable(store, path):
        if path == commit_name(1) and (store.folder / path).exists():
            raise BROKEN_DISK
        return read(store, path)

    monkeypatch.setattr(storage.Disk, "read", unreadable)
    with pytest.raises(CommitStateUnknown, match=r"version 1 .*Input/output error"):
        appender.append(numbers(1), "query", 0)
    monkeypatch.setattr(storage.Disk, "read", read)
    assert rows(folder) == [1]
    assert not appender.append(numbers(1), "query", 0)
    assert rows(folder) == [1]


@pytest.mark.parametrize("length", [0, 40, -1])
@pytest.mark.parametrize("error", [NFS_REPEATED, BROKEN_DISK], ids=["nfs", "eio"])
def test_an_append_that_is_there_and_read_cut_off_says_so_and_keeps_its_file(
    folder, monkeypatch, error, length
):
    """Taken for another writer's, the commit would name a file that its writer has deleted."""
    appender = Appender(folder)
    break_link(monkeypatch, error, works=True)
    read = storage.Disk.read

    def cut_off(store, path):
        content = read(store, path)
        return content[:length] if path == commit_name(1) and content else content

    monkeypatch.setattr(storage.Disk, "read", cut_off)
    with pytest.raises(CommitStateUnknown, match="version 1 "):
        appender.append(numbers(1), "query", 0)
    monkeypatch.setattr(storage.Disk, "read", read)
    assert rows(folder) == [1]
    assert not appender.append(numbers(1), "query", 0)
    assert rows(folder) == [1]


def test_an_append_whose_link_was_refused_leaves_no_file(folder, monkeypatch):
    appender = Appender(folder)
    break_link(monkeypatch, NO_SPACE, works=False)
    with pytest.raises(OSError, match="No space left"):
        appender.append(numbers(1), "query", 0)
    assert files(folder) == 0


def test_two_commits_of_one_content_are_told_apart(folder, monkeypatch):
    """Two nodes say the same in one millisecond: of one version only one of them is the writer."""
    monkeypatch.setattr("group_coordinator.pipeline.delta.commit.clock_ms", lambda: 5)
    first, second = Appender(folder), Appender(folder)
    assert second.last_version("lease") == -1
    monkeypatch.setattr(second._writer.snapshot, "follow", lambda **_: None)
    monkeypatch.setattr("group_coordinator.pipeline.delta.writer.ATTEMPTS", 2)
    assert first.append(None, "lease", 7)
    with pytest.raises(AppendConflict):
        second.append(None, "lease", 7)


def test_a_commit_that_could_not_be_begun_leaves_no_file(folder, monkeypatch):
    appender = Appender(folder)

    def full(*_: object) -> None:
        raise NO_SPACE

    monkeypatch.setattr(storage, "write_partial", full)
    with pytest.raises(OSError, match="No space left"):
        appender.append(numbers(1), "query", 0)
    assert files(folder) == 0


def test_a_data_file_that_could_not_be_written_is_not_left_behind(folder, monkeypatch):
    appender = Appender(folder)

    def full(path: Path, content: pa.Buffer) -> None:
        with path.open("wb") as file:
            file.write(content[:4])
        raise NO_SPACE

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        appender.append(numbers(1))
    assert files(folder) == 0


@pytest.mark.parametrize("error", [NFS_REPEATED, BROKEN_DISK], ids=["nfs", "eio"])
def test_a_rewrite_whose_link_is_there_has_succeeded(folder, monkeypatch, error):
    Appender(folder).append(numbers(1))
    writer = Writer(str(folder), flushed=False)
    break_link(monkeypatch, error)
    assert writer.commit(Changes(remove=data_files(DeltaTable(str(folder))))) == 2
    assert rows(folder) == []
    assert not commit_path(folder / "_delta_log", 3).exists()


def clean_up(folder: Path) -> None:
    """Let others append five rows, and clean the log up to their last one."""
    busy = Appender(folder)
    for n in range(5):
        busy.append(numbers(n))
    newest = DeltaTable(str(folder)).version()
    DeltaTable(str(folder)).create_checkpoint()
    for old in range(newest):
        commit_path(folder / "_delta_log", old).unlink(missing_ok=True)


@pytest.fixture
def slow_link(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next link is made after the log was cleaned up beyond its version."""
    link = os.link

    def slow(source: Path, target: Path) -> None:
        monkeypatch.setattr(storage.os, "link", link)
        clean_up(folder)
        link(source, target)

    monkeypatch.setattr(storage.os, "link", slow)


def test_a_commit_that_comes_after_a_clean_up_beyond_its_version_is_not_taken_for_written(
    folder: Path, slow_link: None
):
    appender = Appender(folder)
    with pytest.raises(CommitStateUnknown, match="cleaned up beyond it"):
        appender.append(numbers(7), "app", 1)
    assert rows(folder) == [0, 1, 2, 3, 4]
    appender.forget()
    assert appender.append(numbers(7), "app", 1)
    assert rows(folder) == [0, 1, 2, 3, 4, 7]


def test_of_two_writers_that_stand_still_at_once_neither_takes_the_other_s_commit_for_the_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """The second one's predecessor is there: it is the first one's, which no reader sees."""
    first, link = Appender(folder), os.link
    written: list[bool] = []

    def links_last(source: Path, target: Path) -> None:
        """The first one stands still before its link, and so does the second one."""
        monkeypatch.setattr(storage.os, "link", link)
        Appender(folder).append(numbers(9))
        second = Appender(folder)

        def links_behind_it(its_source: Path, its_target: Path) -> None:
            monkeypatch.setattr(storage.os, "link", link)
            clean_up(folder)
            link(source, target)
            link(its_source, its_target)

        monkeypatch.setattr(storage.os, "link", links_behind_it)
        with pytest.raises(CommitStateUnknown, match="cleaned up beyond it"):
            second.append(numbers(8), "second", 1)
        second.forget()
        written.append(second.append(numbers(8), "second", 1))

    monkeypatch.setattr(storage.os, "link", links_last)
    with pytest.raises(CommitStateUnknown, match="cleaned up beyond it"):
        first.append(numbers(7), "first", 1)
    first.forget()
    written.append(first.append(numbers(7), "first", 1))
    assert written == [True, True]
    assert rows(folder) == [0, 1, 2, 3, 4, 7, 8, 9]


def test_a_version_that_another_writer_came_to_meanwhile_is_not_taken_for_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Two gateways would give the same block of producer ids."""
    slow, link = Appender(folder), os.link

    def late(source: Path, target: Path) -> None:
        monkeypatch.setattr(storage.os, "link", link)
        assert Appender(folder).append(None, "blocks", 0)
        clean_up(folder)
        link(source, target)

    monkeypatch.setattr(storage.os, "link", late)
    with pytest.raises(CommitStateUnknown, match="cleaned up beyond it"):
        slow.append(None, "blocks", 0)
    slow.forget()
    assert slow.last_version("blocks") == 0
    assert slow.append(None, "blocks", 1)


def test_a_commit_whose_version_was_cleaned_up_after_it_was_written_is_not_written_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    link = os.link

    def link_and_sleep(source: Path, target: Path) -> None:
        monkeypatch.setattr(storage.os, "link", link)
        link(source, target)
        clean_up(folder)

    appender = Appender(folder)
    monkeypatch.setattr(storage.os, "link", link_and_sleep)
    assert appender.append(numbers(7), "app", 1)
    appender.forget()
    assert not appender.append(numbers(7), "app", 1)
    assert rows(folder) == [0, 1, 2, 3, 4, 7]
