"""In a store commits and their files are asked for side by side, and little that is not there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow.fs import PyFileSystem

from group_coordinator.pipeline.delta import tail
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.store_files import StoreFiles
from group_coordinator.pipeline.delta.tail import Position, appended


class WatchedFiles(StoreFiles):
    """A store that notes what it is asked, and answers only once `most` requests wait, if any."""

    def __init__(self, uri: str, most: int = 0) -> None:
        super().__init__(uri)
        self.asked: list[str] = []
        self._most = most
        self._lock = threading.Lock()
        self._waiting = 0
        self.together = threading.Event()

    def _wait(self, path: str) -> None:
        with self._lock:
            self.asked.append(path)
            self._waiting += 1
            if self._waiting >= self._most:
                self.together.set()
        assert self.together.wait(30), f"no {self._most} requests are under way at once"
        with self._lock:
            self._waiting -= 1

    def open_input_stream(self, path: str) -> pa.NativeFile:
        self._wait(path)
        return super().open_input_stream(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        self._wait(path)
        return super().open_input_file(path)


Append = Callable[[int], None]


@pytest.fixture
def append(tmp_path: Path) -> Append:
    """Appends so many commits of one row each; the rows are numbered."""
    DeltaTable.create(str(tmp_path), pa.schema([("n", pa.int64())]))
    appender = Appender(tmp_path)
    count = 0

    def append(commits: int) -> None:
        nonlocal count
        for _ in range(commits):
            appender.append(pa.table({"n": pa.array([count], pa.int64())}))
            count += 1

    return append


def numbers(files: StoreFiles, start: int, end: int | None = None) -> list[int]:
    last = None if end is None else Position(end)
    pages = appended(PyFileSystem(files), Position(start), ["n"], last)
    return [n for rows, _ in pages if rows is not None for n in rows.column("n").to_pylist()]


def test_up_to_a_known_end_so_many_are_asked_at_once(tmp_path: Path, append: Append) -> None:
    append(30)
    files = WatchedFiles(str(tmp_path), tail.AT_ONCE)
    assert numbers(files, 1, 25) == [*range(24)]
    commits = [path for path in files.asked if path.endswith(".json")]
    assert len(files.asked) == 48
    assert f"_delta_log/{25:020}.json" not in commits, "behind the end nothing is asked for"


def test_a_commit_s_file_is_asked_for_while_the_next_commit_is(
    tmp_path: Path, append: Append
) -> None:
    append(1)
    files = WatchedFiles(str(tmp_path))
    assert numbers(files, 1) == [0]
    first, *then = files.asked
    assert first.endswith(f"{1:020}.json")
    assert sorted(path.rpartition(".")[2] for path in then) == ["json", "parquet"]


def test_what_is_not_there_is_asked_for_only_after_several_were(
    tmp_path: Path, append: Append
) -> None:
    append(3)
    files = WatchedFiles(str(tmp_path))
    assert numbers(files, 1) == [0, 1, 2]
    missing = [path for path in files.asked if path.endswith(".json")][3:]
    assert missing == [f"_delta_log/{4:020}.json"]
    append(37)
    files.asked.clear()
    assert numbers(files, 1) == [*range(40)]
    assert len({path for path in files.asked if path.endswith(".json")}) <= 40 + tail.AT_ONCE


def test_a_file_that_is_gone_is_an_error_in_its_turn(tmp_path: Path, append: Append) -> None:
    append(20)
    second = DeltaTable(str(tmp_path), version=2).file_uris()
    (gone,) = set(second) - set(DeltaTable(str(tmp_path), version=1).file_uris())
    Path(gone).unlink()
    pages = appended(PyFileSystem(StoreFiles(str(tmp_path))), Position(1), ["n"], Position(21))
    rows, _ = next(pages)
    assert rows is not None
    assert rows.column("n").to_pylist() == [0]
    assert next(pages) == (None, Position(2))
    with pytest.raises(FileNotFoundError):
        next(pages)


def test_large_files_do_not_wait_in_memory(
    tmp_path: Path, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_SMALL_BYTES", 1)
    append(20)
    files = WatchedFiles(str(tmp_path))
    pages = appended(PyFileSystem(files), Position(1), ["n"], Position(21))
    rows, _ = next(pages)
    assert rows is not None
    assert len([path for path in files.asked if path.endswith(".parquet")]) == 1
    assert len(list(pages)) == 39
