"""A write of requests is one commit, whatever the store, other writers and Spark's retries do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import COMMITTABLE_S, storage
from group_coordinator.pipeline.delta.retry_budget import CommitTimeoutError
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.settings import SettingsError
from group_coordinator.pipeline.spark import request_writer
from group_coordinator.pipeline.spark.data_source import UnsupportedMode
from group_coordinator.pipeline.spark.request_writer import LostCheckpoint, WrittenFiles
from group_coordinator.pipeline.tables.request_log import TAG, RequestLog
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import REQUESTS
from tests.pipeline.rows import heartbeat
from tests.pipeline.spark.tasks import (
    SCHEMA,
    arrow,
    batch_writer,
    commits,
    data_source,
    fetch,
    files,
    ids,
    stream_writer,
    task,
    written,
)

BROKEN_DISK = OSError(errno.EIO, "Input/output error")
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


def before_link(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Run an action before the next commit's file is linked to its name."""
    link = os.link

    def linked(source: object, target: object) -> None:
        monkeypatch.setattr(storage.os, "link", link)
        action()
        link(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(storage.os, "link", linked)


def lose_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next commit be made, fail, and be unreadable until the second read."""
    link, read = os.link, storage.Disk.read
    unreadable: list[str] = []

    def linked(source: object, target: object) -> None:
        monkeypatch.setattr(storage.os, "link", link)
        link(source, target)  # type: ignore[arg-type]
        unreadable.append(Path(str(target)).name)
        raise BROKEN_DISK

    def read_once(store: storage.Disk, path: str) -> bytes | None:
        if Path(path).name in unreadable:
            unreadable.clear()
            raise BROKEN_DISK
        return read(store, path)

    monkeypatch.setattr(storage.os, "link", linked)
    monkeypatch.setattr(storage.Disk, "read", read_once)


# --- a DataFrame ----------------------------------------------------------------------------------


def test_the_rows_of_all_tasks_are_one_commit_in_the_order_of_the_tasks(root: str) -> None:
    writer = batch_writer(root)
    messages = written(writer, [fetch("a"), fetch("b")], [], [fetch("c")])
    assert commits(root) == 0
    writer.commit(messages)
    assert commits(root) == 1
    assert ids(root) == ["a", "b", "c"]


def test_a_write_without_rows_makes_no_commit(root: str) -> None:
    writer = batch_writer(root)
    writer.commit(written(writer, [], []))
    assert commits(root) == 0


def test_files_have_the_tags_of_a_producer_s_file(root: str) -> None:
    writer = batch_writer(root)
    (message,) = written(writer, [fetch(str(number), str(number)) for number in range(5000)])
    assert message is not None
    (file,) = message.files
    assert file.records == 5000
    assert len(file.tags[TAG].split(",")) == 5


def test_only_files_of_the_commit_messages_count(root: str) -> None:
    """A speculative task writes the rows again, and Spark ignores its message."""
    writer = batch_writer(root)
    messages = written(writer, [fetch("a")])
    written(writer, [fetch("a")])
    writer.commit(messages)
    assert ids(root) == ["a"]


def test_a_commit_beside_another_writer_loses_and_doubles_nothing(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = batch_writer(root)
    messages = written(writer, [fetch("a")])
    before_link(monkeypatch, lambda: RequestLog(root).append([heartbeat("other")]))
    writer.commit(messages)
    assert ids(root) == ["other", "a"]


def test_a_commit_that_was_made_and_seemed_to_fail_is_not_made_again(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = batch_writer(root)
    messages = written(writer, [fetch("a")])
    lose_outcome(monkeypatch)
    writer.commit(messages)
    assert ids(root) == ["a"]
    assert commits(root) == 1


def test_a_commit_that_certainly_fails_deletes_its_files(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_writer, "DELIVERY_TIMEOUT_MS", 0)
    writer = batch_writer(root)
    messages = written(writer, [fetch("a")], [fetch("b")])
    assert files(root) == 2

    def full() -> None:
        raise NO_SPACE

    before_link(monkeypatch, full)
    with pytest.raises(CommitTimeoutError, match="No space left"):
        writer.commit(messages)
    assert files(root) == 0
    assert commits(root) == 0


def test_after_an_unknown_outcome_the_files_stay(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_writer, "DELIVERY_TIMEOUT_MS", 0)
    writer = batch_writer(root)
    messages = written(writer, [fetch("a")])
    lose_outcome(monkeypatch)
    with pytest.raises(CommitTimeoutError, match="Input/output error"):
        writer.commit(messages)
    writer.abort(messages)
    assert ids(root) == ["a"]


def test_abort_after_a_failed_task_deletes_the_files_of_the_others(root: str) -> None:
    writer = batch_writer(root)
    (message,) = written(writer, [fetch("a")])
    writer.abort([message, None])
    assert files(root) == 0


def test_abort_after_a_commit_deletes_nothing(root: str) -> None:
    """Spark calls it if the process of the commit ends before it has reported."""
    writer = batch_writer(root)
    messages = written(writer, [fetch("a")])
    writer.commit(messages)
    writer.abort(messages)
    assert ids(root) == ["a"]
    assert files(root) == 1


def test_files_that_vacuum_may_have_deleted_are_copied_before_they_are_committed(root: str) -> None:
    writer = batch_writer(root)
    (message,) = written(writer, [fetch("a")])
    assert message is not None
    (file,) = message.files
    begun_ms = clock_ms() - 1_000 * int(COMMITTABLE_S + 1)
    old = msgspec.structs.replace(file, modified_ms=begun_ms)
    writer.commit([replace(message, files=(old,))])
    assert ids(root) == ["a"]
    assert (Path(root) / "requests" / file.path).exists()
    (Path(root) / "requests" / file.path).unlink()
    assert ids(root) == ["a"]


# --- a stream -------------------------------------------------------------------------------------


def run_batch(root: str, number: int, *names: str, query: str = "query-1") -> None:
    writer = stream_writer(root)
    messages = written(writer, [fetch(name) for name in names], batch=number, query=query)
    stream_writer(root).commit(messages, number)


def test_a_batch_that_is_run_again_is_skipped_and_its_files_are_deleted(root: str) -> None:
    run_batch(root, 0, "a")
    run_batch(root, 1, "b")
    run_batch(root, 1, "b")
    run_batch(root, 3, "c")
    assert ids(root) == ["a", "b", "c"]
    assert files(root) == 3


@pytest.mark.parametrize(
    ("number", "query"),
    [(1, "query-1"), (2, "query-2"), (5, "query-2")],
    ids=["lower", "equal", "higher"],
)
def test_a_batch_of_a_lost_checkpoint_is_an_error_and_commits_nothing(
    root: str, number: int, query: str
) -> None:
    run_batch(root, 2, "a")
    with pytest.raises(
        LostCheckpoint, match=rf"batch {number} of txnAppId 'job' .* has batch 2 .*"
    ):
        run_batch(root, number, "b", query=query)
    assert ids(root) == ["a"]
    assert files(root) == 1


def test_the_history_names_the_query_and_the_number_of_a_batch(root: str) -> None:
    run_batch(root, 7, "a")
    newest = DeltaTable(table_uri(root, REQUESTS)).history(1)[0]
    assert newest["operation"] == "STREAMING UPDATE"
    assert newest["operationParameters"]["queryId"] == "query-1"
    assert newest["operationParameters"]["epochId"] == "7"


def test_a_batch_without_requests_makes_no_commit(root: str) -> None:
    run_batch(root, 0)
    assert commits(root) == 0


def test_streams_with_their_own_ids_do_not_disturb_each_other(root: str) -> None:
    run_batch(root, 7, "a")
    writer = stream_writer(root, txnAppId="another")
    writer.commit(written(writer, [fetch("b")], batch=0, query="query-2"), 0)
    run_batch(root, 8, "c")
    assert ids(root) == ["a", "b", "c"]


def test_a_batch_whose_commit_seemed_to_fail_is_not_written_again(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_batch(root, 0, "a")
    lose_outcome(monkeypatch)
    run_batch(root, 1, "b")
    assert ids(root) == ["a", "b"]
    run_batch(root, 1, "b")
    assert ids(root) == ["a", "b"]


def test_of_two_drivers_with_the_same_batch_one_writes_it(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other driver, which Spark has replaced, commits at the same time."""
    run_batch(root, 0, "a")
    before_link(monkeypatch, lambda: run_batch(root, 1, "b"))
    run_batch(root, 1, "b")
    assert ids(root) == ["a", "b"]
    assert files(root) == 2


def test_a_task_without_spark_s_properties_of_the_batch_is_refused(root: str) -> None:
    writer = stream_writer(root)
    with task(0), pytest.raises(Failure, match=r"streaming\.sql\.batchId"):
        writer.write(iter([arrow([fetch("a")])]))


def test_abort_of_a_batch_after_a_failed_task_deletes_its_files(root: str) -> None:
    writer = stream_writer(root)
    messages: list[WrittenFiles | None] = [*written(writer, [fetch("a")], batch=0), None]
    writer.abort(messages, 0)
    assert files(root) == 0


# --- options --------------------------------------------------------------------------------------


def test_a_mode_other_than_append_is_refused(root: str) -> None:
    source = data_source(root, {"txnAppId": "job"})
    with pytest.raises(UnsupportedMode, match="only appended"):
        source.writer(SCHEMA, overwrite=True)
    with pytest.raises(UnsupportedMode, match="only appended"):
        source.streamWriter(SCHEMA, overwrite=True)


def test_missing_and_invalid_options_are_named(root: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="txnAppId"):
        data_source(root, {}).streamWriter(SCHEMA, overwrite=False)
    with pytest.raises(SettingsError, match="root"):
        data_source("", {}).writer(SCHEMA, overwrite=False)
    with pytest.raises(SettingsError, match="maxRequestSize is '1 MB'"):
        data_source(root, {"maxRequestSize": "1 MB"}).writer(SCHEMA, overwrite=False)
    with pytest.raises(SettingsError, match="rot does not exist"):
        data_source(str(tmp_path / "rot"), {}).writer(SCHEMA, overwrite=False)
    assert not (tmp_path / "rot").exists()
