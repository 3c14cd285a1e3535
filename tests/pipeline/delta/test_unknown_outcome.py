"""A store that does what it was asked and says that it failed: no row is lost, and none doubled."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

from group_coordinator.pipeline.client import ProducerSettings, RequestProducer
from group_coordinator.pipeline.delta import commit, remote_appender, remote_commit
from group_coordinator.pipeline.delta.appender import AppendConflict
from group_coordinator.pipeline.delta.commit import CommitStateUnknown
from group_coordinator.pipeline.delta.data_files import data_files
from group_coordinator.pipeline.delta.local_appender import LocalAppender
from group_coordinator.pipeline.delta.log import commit_path
from group_coordinator.pipeline.delta.remote_appender import RemoteAppender
from group_coordinator.pipeline.delta.rewrite import Rewrite, commit_elsewhere, commit_to_log
from group_coordinator.pipeline.delta.table_log import FolderLog
from tests.pipeline.rows import heartbeat
from tests.pipeline.rows import rows as table_rows

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
    monkeypatch.setattr(commit.os, "link", Once(os.link, error, works))


# --- in a local folder --------------------------------------------------------------------------


@pytest.mark.parametrize("error", [NFS_REPEATED, BROKEN_DISK], ids=["nfs", "eio"])
def test_an_append_whose_link_is_there_has_succeeded(folder, monkeypatch, error):
    appender = LocalAppender(folder)
    break_link(monkeypatch, error)
    assert appender.append(numbers(1), "query", 0)
    assert appender.append(numbers(2), "query", 1)
    assert rows(folder) == [1, 2]
    assert not list((folder / "_delta_log").glob(".*"))


def test_an_append_that_is_interrupted_after_its_link_keeps_its_file(folder, monkeypatch):
    appender = LocalAppender(folder)
    break_link(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        appender.append(numbers(1), "query", 0)
    assert rows(folder) == [1]
    assert not appender.append(numbers(1), "query", 0), "what stands is not written again"
    assert rows(folder) == [1]
    assert files(folder) == 1


def test_an_append_whose_outcome_cannot_be_read_says_so_and_keeps_its_file(folder, monkeypatch):
    appender = LocalAppender(folder)
    break_link(monkeypatch, BROKEN_DISK, works=False)
    with pytest.raises(CommitStateUnknown, match=r"version 1 .*Input/output error"):
        appender.append(numbers(1), "query", 0)
    assert files(folder) == 1
    assert appender.append(numbers(1), "query", 0)
    assert rows(folder) == [1]


def test_an_append_whose_link_was_refused_leaves_no_file(folder, monkeypatch):
    appender = LocalAppender(folder)
    break_link(monkeypatch, NO_SPACE, works=False)
    with pytest.raises(OSError, match="No space left"):
        appender.append(numbers(1), "query", 0)
    assert files(folder) == 0


def test_two_commits_of_one_content_are_told_apart(folder, monkeypatch):
    """Two nodes say the same in one millisecond: of one version only one of them is the writer."""
    monkeypatch.setattr("group_coordinator.pipeline.delta.actions.clock_ms", lambda: 5)
    first, second = LocalAppender(folder), LocalAppender(folder)
    assert second.last_version("lease") == -1
    monkeypatch.setattr(second._snapshot, "follow", lambda: None)
    monkeypatch.setattr("group_coordinator.pipeline.delta.file_appender.ATTEMPTS", 2)
    assert first.append(None, "lease", 7)
    with pytest.raises(AppendConflict):
        second.append(None, "lease", 7)


def test_a_commit_that_could_not_be_begun_leaves_no_file(folder, monkeypatch):
    appender = LocalAppender(folder)

    def full(*_: object) -> None:
        raise NO_SPACE

    monkeypatch.setattr(commit, "write_partial", full)
    with pytest.raises(OSError, match="No space left"):
        appender.append(numbers(1), "query", 0)
    assert files(folder) == 0


def test_a_data_file_that_could_not_be_written_is_not_left_behind(folder, monkeypatch):
    appender = LocalAppender(folder)
    monkeypatch.setattr(
        "group_coordinator.pipeline.delta.layout.pq.write_table",
        Once(lambda _rows, target, **_: target.write_bytes(b"PAR1"), NO_SPACE),
    )
    with pytest.raises(OSError, match="No space left"):
        appender.append(numbers(1))
    assert files(folder) == 0


@pytest.mark.parametrize("error", [NFS_REPEATED, BROKEN_DISK], ids=["nfs", "eio"])
def test_a_rewrite_whose_link_is_there_has_succeeded(folder, monkeypatch, error):
    LocalAppender(folder).append(numbers(1))
    handle = DeltaTable(str(folder))
    break_link(monkeypatch, error)
    log = FolderLog(folder / "_delta_log")
    commit_to_log(log, str(folder), handle.version(), Rewrite(data_files(handle), []))
    assert rows(folder) == []
    assert not commit_path(folder / "_delta_log", 3).exists()


# --- by delta-rs --------------------------------------------------------------------------------

REFUSED_BY_ITSELF = CommitFailedError("Concurrent transaction failed")
TIMED_OUT = OSError("Generic S3 error: operation timed out")
REMOTE_ERRORS = pytest.mark.parametrize(
    "error", [REFUSED_BY_ITSELF, TIMED_OUT], ids=["refused", "timeout"]
)


def break_write(monkeypatch: pytest.MonkeyPatch, error: Exception, works: bool = True) -> Once:
    once = Once(remote_appender.write_deltalake, error, works)
    monkeypatch.setattr(remote_appender, "write_deltalake", once)
    return once


@REMOTE_ERRORS
@pytest.mark.parametrize("app_id", ["query", None])
def test_an_append_by_delta_rs_that_is_there_has_succeeded(folder, monkeypatch, error, app_id):
    appender = RemoteAppender(str(folder))
    break_write(monkeypatch, error)
    assert appender.append(numbers(1), app_id, 0)
    assert appender.append(numbers(2), app_id, 1)
    assert rows(folder) == [1, 2]


def test_an_append_by_delta_rs_that_timed_out_and_is_not_there_is_an_error(folder, monkeypatch):
    appender = RemoteAppender(str(folder))
    break_write(monkeypatch, TIMED_OUT, works=False)
    with pytest.raises(OSError, match="timed out"):
        appender.append(numbers(1), "query", 0)
    assert appender.append(numbers(1), "query", 0)
    assert rows(folder) == [1]


def test_an_append_whose_outcome_could_not_be_looked_up_is_looked_up_by_the_next(
    folder, monkeypatch
):
    """The store is away: first it does not say what became of the commit, then it does."""
    appender = RemoteAppender(str(folder))
    break_write(monkeypatch, TIMED_OUT)
    monkeypatch.setattr(
        remote_commit, "refresh", Once(remote_commit.refresh, TIMED_OUT, works=False)
    )
    with pytest.raises(CommitStateUnknown, match="timed out"):
        appender.append(numbers(1), "query", 0)
    assert not appender.append(numbers(1), "query", 0)
    assert rows(folder) == [1]


def test_an_append_that_another_writer_made_in_our_name_is_not_ours(folder, monkeypatch):
    appender = RemoteAppender(str(folder))
    other = RemoteAppender(str(folder))
    once = break_write(monkeypatch, REFUSED_BY_ITSELF, works=False)
    once.function, once.calls = (lambda *_, **__: None), 0

    def beaten(*_: object, **__: object) -> None:
        monkeypatch.undo()
        other.append(numbers(9), "query", 0)
        raise REFUSED_BY_ITSELF

    monkeypatch.setattr(remote_appender, "write_deltalake", beaten)
    assert not appender.append(numbers(1), "query", 0)
    assert rows(folder) == [9]


def test_every_append_by_delta_rs_has_a_transaction_so_that_it_is_never_written_twice(folder):
    """delta-rs repeats a commit whose answer was lost; a transaction makes it refuse its own."""
    appender = RemoteAppender(str(folder))
    appender.append(numbers(1))
    appender.append(numbers(2))
    texts = [commit_path(folder / "_delta_log", version).read_text() for version in (1, 2)]
    assert ['"txn"' in text for text in texts] == [True, True]


def test_a_producer_writes_once_what_a_store_wrote_and_denied(root, monkeypatch):
    """The commit is there, its answer is lost, and the store is away for the next look as well."""
    lost = break_write(monkeypatch, TIMED_OUT)
    away = Once(remote_commit.refresh, TIMED_OUT, works=False)
    monkeypatch.setattr(remote_commit, "refresh", away)
    settings = ProducerSettings(linger_ms=0, retry_backoff_ms=1)
    with RequestProducer(root, settings, RemoteAppender) as producer:
        producer.send(heartbeat("a")).result(20)
    assert (lost.calls, away.calls) == (1, 1)
    assert [row["request_id"] for row in table_rows(root, "requests")] == ["a"]


@REMOTE_ERRORS
def test_a_rewrite_by_delta_rs_that_is_there_has_succeeded(folder, monkeypatch, error):
    LocalAppender(folder).append(numbers(1))
    handle = DeltaTable(str(folder))

    class Broken:
        """The table's handle, whose commit is made and then said to have failed."""

        def __getattr__(self, name: str) -> Any:
            found = getattr(handle, name)
            return Once(found, error) if name == "create_write_transaction" else found

    commit_elsewhere(Broken(), Rewrite(data_files(handle), [], [Transaction("run", 1)]))
    assert rows(folder) == []


def clean_up(folder: Path) -> None:
    """Let others append five rows, and clean the log up to their last one."""
    busy = LocalAppender(folder)
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
        monkeypatch.setattr(commit.os, "link", link)
        clean_up(folder)
        link(source, target)

    monkeypatch.setattr(commit.os, "link", slow)


def test_a_commit_that_comes_after_a_clean_up_beyond_its_version_is_not_taken_for_written(
    folder: Path, slow_link: None
):
    appender = LocalAppender(folder)
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
    first, link = LocalAppender(folder), os.link
    written: list[bool] = []

    def links_last(source: Path, target: Path) -> None:
        """The first one stands still before its link, and so does the second one."""
        monkeypatch.setattr(commit.os, "link", link)
        LocalAppender(folder).append(numbers(9))
        second = LocalAppender(folder)

        def links_behind_it(its_source: Path, its_target: Path) -> None:
            monkeypatch.setattr(commit.os, "link", link)
            clean_up(folder)
            link(source, target)
            link(its_source, its_target)

        monkeypatch.setattr(commit.os, "link", links_behind_it)
        with pytest.raises(CommitStateUnknown, match="cleaned up beyond it"):
            second.append(numbers(8), "second", 1)
        second.forget()
        written.append(second.append(numbers(8), "second", 1))

    monkeypatch.setattr(commit.os, "link", links_last)
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
    slow, link = LocalAppender(folder), os.link

    def late(source: Path, target: Path) -> None:
        monkeypatch.setattr(commit.os, "link", link)
        assert LocalAppender(folder).append(None, "blocks", 0)
        clean_up(folder)
        link(source, target)

    monkeypatch.setattr(commit.os, "link", late)
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
        monkeypatch.setattr(commit.os, "link", link)
        link(source, target)
        clean_up(folder)

    appender = LocalAppender(folder)
    monkeypatch.setattr(commit.os, "link", link_and_sleep)
    assert appender.append(numbers(7), "app", 1)
    appender.forget()
    assert not appender.append(numbers(7), "app", 1)
    assert rows(folder) == [0, 1, 2, 3, 4, 7]
