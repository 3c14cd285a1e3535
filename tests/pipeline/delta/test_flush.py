"""What is on the disk when: a loss of power leaves a commit with its data, or neither."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.delta import checkpoint, storage, table_files
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.data_file import data_files
from group_coordinator.pipeline.delta.table_files import Engine, TableFiles
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.sink import Sink
from tests.pipeline.rows import commit_record, output


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is forced to the disk, and linked, in this order: the names' endings."""
    found: list[str] = []

    def flush(path: Path) -> None:
        assert path.exists()
        found.append(f"flush {path.suffix or path.name}")

    def link(source: Path, target: Path) -> None:
        real_link(source, target)
        found.append(f"link {target.suffix}")

    @contextmanager
    def opened_to_flush(path: Path) -> Iterator[Callable[[], None]]:
        yield lambda: flush(path)

    real_link = os.link
    monkeypatch.setattr(storage, "opened_to_flush", opened_to_flush)
    for module in (checkpoint, storage, table_files):
        monkeypatch.setattr(module, "flush", flush)
    monkeypatch.setattr(storage.os, "link", link)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fields = [("n", pa.int64()), ("segment", pa.int64())]
    DeltaTable.create(str(tmp_path / "table"), pa.schema(fields), partition_by=["segment"])
    return tmp_path / "table"


def rows(segment: int) -> pa.Table:
    return pa.table({"n": pa.array([1], pa.int64()), "segment": pa.array([segment], pa.int64())})


def test_data_is_on_the_disk_before_its_commit_and_the_commit_before_the_answer(folder, steps):
    appender = Appender(folder, flushed=True)
    new_segment = ["flush table", "flush .parquet", "flush segment=1"]
    commit = ["flush .tmp", "link .json", "flush _delta_log"]
    appender.append(rows(1))
    assert steps == new_segment + commit
    steps.clear()
    appender.append(rows(1))
    assert steps == new_segment[1:] + commit


def test_a_commit_that_could_not_be_forced_is_not_acknowledged_nor_is_any_after_it(
    folder, monkeypatch
):
    """A second fsync may say that all is well: what the first one lost it does not write again."""
    appender = Appender(folder, flushed=True)
    opened_to_flush = storage.opened_to_flush

    @contextmanager
    def broken(path: Path) -> Iterator[Callable[[], None]]:
        def fail() -> None:
            if path.name != "_delta_log":
                return
            monkeypatch.setattr(storage, "opened_to_flush", opened_to_flush)
            raise OSError(errno.EIO, "Input/output error")

        yield fail

    monkeypatch.setattr(storage, "opened_to_flush", broken)
    for _ in range(2):
        with pytest.raises(storage.NotFlushed, match="may not survive a power loss"):
            appender.append(rows(1), "app", 1)
        appender.forget()
    with pytest.raises(storage.NotFlushed):
        appender.append(rows(2), "app", 2)
    again = Appender(folder, flushed=True)
    assert not again.append(rows(1), "app", 1), "it is in the log"
    assert again.append(rows(2), "app", 2)
    assert DeltaTable(str(folder)).to_pyarrow_table().num_rows == 2


def test_a_log_that_cannot_be_opened_to_be_forced_gets_no_commit(folder, monkeypatch):
    """Afterwards nobody would know whether the commit is on the disk."""
    appender = Appender(folder, flushed=True)
    before = sorted(folder.rglob("*"))
    open_file = os.open

    def too_many(path: Path, *arguments: int) -> int:
        if Path(path).name == "_delta_log":
            monkeypatch.setattr(os, "open", open_file)
            raise OSError(errno.EMFILE, "Too many open files")
        return open_file(path, *arguments)

    monkeypatch.setattr(os, "open", too_many)
    with pytest.raises(OSError, match="Too many open files"):
        appender.append(rows(1), "app", 1)
    assert sorted(each for each in folder.rglob("*") if each.name != "segment=1") == before
    assert appender.append(rows(1), "app", 1)
    assert DeltaTable(str(folder)).to_pyarrow_table().num_rows == 1


def test_nothing_is_forced_unless_it_is_asked_for(folder, steps):
    Appender(folder).append(rows(1))
    assert steps == ["link .json"]


def test_a_rewrite_is_always_forced_because_the_rows_that_it_replaces_go(folder, steps, tmp_path):
    Appender(folder).append(rows(1))
    steps.clear()
    with Engine(64 << 20, 1, tmp_path) as engine:
        files = TableFiles(DeltaTable(str(folder)), tmp_path)
        before = data_files(files.handle)
        engine.show("old", files, before)
        added = files.write(engine, "SELECT * FROM old", {"segment": "1"})
        assert added is not None
        files.rewrite(before, [added])
    assert steps == [
        "flush .parquet",
        "flush segment=1",
        "flush table",
        "flush .tmp",
        "link .json",
        "flush _delta_log",
    ]


def test_a_delta_checkpoint_is_on_the_disk_before_the_commits_that_it_replaces_go(
    folder, steps, monkeypatch
):
    Appender(folder).append(rows(1))
    steps.clear()
    monkeypatch.setattr(DeltaTable, "cleanup_metadata", lambda _: steps.append("clean up"))
    checkpoint.checkpoint(str(folder), 1, {}, cleans_up=False)
    assert steps == ["flush .parquet", "flush _last_checkpoint", "flush _delta_log", "clean up"]


@pytest.mark.parametrize("enabled", [False, True])
def test_the_setting_holds_for_what_a_batch_writes(root, steps, enabled):
    sink = Sink(root, CoordinatorSettings(log_flush_enable=enabled))
    sink.write([output(1, [commit_record(0, 1)], 1, 1)], "query", 0)
    assert steps.count("link .json") == 4
    assert steps.count("flush _delta_log") == (4 if enabled else 0)
