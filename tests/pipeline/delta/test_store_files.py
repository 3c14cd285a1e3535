"""A process that ends waits until Arrow has let go of what a store's file system lent to it.

A local folder stands for the store, by the same library; `tests/object_store` asks an S3 server.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSystem, PyFileSystem

from group_coordinator.pipeline.delta import object_store, store_files
from group_coordinator.pipeline.delta.store_files import StoreFiles, await_let_go

ROWS = pa.table({"number": range(1_000)})


@pytest.fixture
def nothing_lent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Another test's file may be held by a traceback.
    monkeypatch.setattr(store_files, "_lent", [])
    yield
    await_let_go(30)
    assert not store_files._lent


@pytest.fixture
def files(tmp_path: Path, nothing_lent: None) -> FileSystem:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    return PyFileSystem(StoreFiles(str(tmp_path)))


@pytest.mark.parametrize("large", [False, True])
def test_an_open_file_of_a_store_is_lent_until_it_is_let_go(
    files: FileSystem, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        monkeypatch.setattr(object_store, "FIRST_BYTES", 1)
    file = files.open_input_file("a.parquet")
    assert store_files._lent
    content = file.read_buffer()
    del file
    assert store_files._lent
    assert pq.read_table(pa.BufferReader(content)) == ROWS
    del content
    await_let_go(30)
    assert not store_files._lent


def test_a_stream_of_a_store_is_lent(files: FileSystem) -> None:
    stream = files.open_input_stream("a.parquet")
    assert store_files._lent
    del stream


def test_the_wait_ends_when_another_thread_lets_go(files: FileSystem) -> None:
    held = [files.open_input_file("a.parquet")]
    waits = threading.Thread(target=await_let_go, args=(600,))
    waits.start()
    assert waits.is_alive()
    held.clear()
    waits.join(60)
    assert not waits.is_alive()


def test_the_wait_ends_by_its_limit(files: FileSystem) -> None:
    held = files.open_input_file("a.parquet")
    await_let_go(0.01)
    assert store_files._lent
    del held


def test_a_process_waits_at_its_end(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    program = f"""
import os, threading, time
from group_coordinator.pipeline.delta.store_files import StoreFiles, await_let_go
# The usual limit is a matter of time: here the thread that lets go ends the wait.
await_let_go.__defaults__ = (60.0,)
held = [StoreFiles({str(tmp_path)!r}).open_input_file("a.parquet")]
ends = threading.current_thread()
def lets_go():
    while ends.is_alive():
        time.sleep(0.001)
    # In one write, and before the wait ends: then the process may end between any two lines.
    time.sleep(0.1)
    os.write(1, b"let go\\n")
    held.clear()
threading.Thread(target=lets_go, daemon=True).start()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "let go\n"
