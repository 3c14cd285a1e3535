"""How a bootstrap reads many small files: in a store their requests are side by side."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.fs import PyFileSystem

from pipeline.delta.data_files import data_files
from pipeline.delta.engine import Engine
from pipeline.delta.object_store import Folder, StoreFiles
from pipeline.delta.side_by_side import MOST
from pipeline.delta.table_files import TableFiles
from pipeline.node import table_scan
from pipeline.node.table_scan import TableScan
from pipeline.tables.request_log import RequestLog
from pipeline.tables.store import open_table
from schemas.tables import REQUESTS
from tests.pipeline.rows import heartbeat

FILES = 2 * MOST


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
    return threading.Barrier(MOST, timeout=30)


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


def test_the_copies_of_a_store_s_files_are_fetched_side_by_side(
    root: str,
    uri: str,
    together: threading.Barrier,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    download = Folder.download

    def fetch(folder: Folder, path: str, target: Path) -> None:
        together.wait()
        download(Folder(uri), path, target)

    monkeypatch.setattr(Folder, "download", fetch)
    monkeypatch.setattr("pipeline.delta.table_files.local_folder", lambda _: None)
    handle = open_table(root, REQUESTS)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with Engine(1 << 28, 1, scratch) as engine:
        table = TableFiles(handle, scratch)
        engine.show("asked", table, data_files(handle))
        rows = engine.run("SELECT request_id FROM asked")
    assert sorted(rows) == sorted((f"request-{number}",) for number in range(FILES))
