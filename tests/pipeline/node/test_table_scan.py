"""How a bootstrap reads many small files: in a store their requests are side by side."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.fs import PyFileSystem

from group_coordinator.pipeline.delta.data_file import data_files
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.store_files import AT_ONCE, StoreFiles
from group_coordinator.pipeline.delta.table_files import Engine, TableFiles
from group_coordinator.pipeline.node import table_scan
from group_coordinator.pipeline.node.read_ahead import AT_ONCE_BESIDE_BATCHES, ReadAhead
from group_coordinator.pipeline.node.table_scan import TableScan
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import open_table
from group_coordinator.schemas.tables import REQUESTS
from tests.pipeline.rows import heartbeat

FILES = 2 * AT_ONCE


@pytest.fixture
def uri(root: str) -> str:
    """`requests` with one request in each of its files, as a store names it."""
    log = RequestLog(root)
    for number in range(FILES):
        log.append([heartbeat(f"request-{number}", "g")])
    return (Path(root) / "requests").as_uri()


@pytest.fixture
def together() -> threading.Barrier:
    """Whoever asks waits until so many others ask: one after the other nobody gets on."""
    return threading.Barrier(AT_ONCE, timeout=30)


def test_a_scan_of_a_store_opens_files_side_by_side(
    root: str, uri: str, together: threading.Barrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Store(StoreFiles):
        def open_input_file(self, path: str) -> pa.NativeFile:
            together.wait()
            return super().open_input_file(path)

    def found() -> list[tuple[int, int, list[str]]]:
        scan = TableScan(open_table(root, REQUESTS))
        pages = scan.pages(["request_id"])
        return [(file, first, rows.column("request_id").to_pylist()) for file, first, rows in pages]

    # Files of one millisecond are in no order that is known beforehand.
    one_by_one = found()
    assert sorted(ids for _, _, ids in one_by_one) == sorted([f"request-{n}"] for n in range(FILES))
    monkeypatch.setattr(table_scan, "open_files", lambda _: PyFileSystem(Store(uri)))
    assert found() == one_by_one


@pytest.mark.parametrize("beside_batches", [False, True])
def test_beside_a_query_fewer_files_are_asked_for_at_once(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch, beside_batches: bool
) -> None:
    """A request of the query's batch would wait behind all that are under way."""
    most = AT_ONCE_BESIDE_BATCHES if beside_batches else AT_ONCE
    together = threading.Barrier(most, timeout=30)
    asked = threading.Semaphore(most)

    class Store(StoreFiles):
        def open_input_file(self, path: str) -> pa.NativeFile:
            assert asked.acquire(blocking=False), f"more than {most} are under way"
            together.wait()
            asked.release()
            return super().open_input_file(path)

    monkeypatch.setattr(table_scan, "open_files", lambda _: PyFileSystem(Store(uri)))
    with ReadAhead(root, CoordinatorSettings(), beside_batches) as ahead:
        ahead.read_on()
        assert ahead.engine.run("SELECT count(*) FROM unanswered") == [(FILES,)]


def test_the_copies_of_a_store_s_files_are_fetched_side_by_side(
    root: str,
    uri: str,
    together: threading.Barrier,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    download = ObjectStore.download

    def fetch(folder: ObjectStore, path: str, target: Path) -> None:
        together.wait()
        download(ObjectStore(uri), path, target)

    monkeypatch.setattr(ObjectStore, "download", fetch)
    monkeypatch.setattr("group_coordinator.pipeline.delta.table_files.local_folder", lambda _: None)
    handle = open_table(root, REQUESTS)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with Engine(1 << 28, 1, scratch) as engine:
        table = TableFiles(handle, scratch)
        engine.show("asked", table, data_files(handle))
        rows = engine.run("SELECT request_id FROM asked")
    assert sorted(rows) == sorted((f"request-{number}",) for number in range(FILES))
