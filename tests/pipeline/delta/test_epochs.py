"""Epochs: of two coordinators on one root the later one writes, and the earlier one cannot."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.delta.appender import Appender, Epoch, FencedError, raise_epoch
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.tables.store import WRITTEN, ensure_tables, table_uri
from group_coordinator.schemas.tables import RESPONSES
from tests.pipeline.rows import commit_record, output, rows
from tests.waiting import wait_until

EPOCH_0, EPOCH_1 = Epoch(1, 0), Epoch(1, 1)


@pytest.fixture
def table(tmp_path: Path) -> str:
    DeltaTable.create(str(tmp_path), pa.schema([("n", pa.int64())]))
    return str(tmp_path)


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def written(uri: str) -> list[int]:
    return sorted(DeltaTable(uri).to_pyarrow_table().column("n").to_pylist())


def test_a_later_epoch_stops_the_earlier_writer(table: str) -> None:
    earlier: Appender = Appender(table, EPOCH_0)
    raise_epoch(table, Epoch(1, 0))
    assert earlier.append(numbers(1), "q", 0)
    raise_epoch(table, Epoch(1, 1))
    with pytest.raises(FencedError, match="epoch 1 of node 1 has taken over"):
        earlier.append(numbers(2), "q", 1)
    assert Appender(table, EPOCH_1).append(numbers(3), "q", 1)
    assert written(table) == [1, 3]


def test_a_fenced_append_leaves_no_file_behind(table: str) -> None:
    earlier = Appender(Path(table), EPOCH_0)
    raise_epoch(table, Epoch(1, 1))
    with pytest.raises(FencedError):
        earlier.append(numbers(2))
    assert not list(Path(table).glob("*.parquet"))


def test_an_epoch_cannot_go_back(table: str) -> None:
    raise_epoch(table, Epoch(1, 2))
    raise_epoch(table, Epoch(1, 2))
    with pytest.raises(FencedError, match="epoch 2 of node 1 has taken over"):
        raise_epoch(table, Epoch(1, 1))


def test_the_fence_falls_between_two_commits_of_a_busy_writer(table: str) -> None:
    """Whatever the instant: all commits before the fence stand, and none comes after it."""
    appender: Appender = Appender(table, EPOCH_0)
    acknowledged: list[int] = []
    fenced = threading.Event()

    def write() -> None:
        for n in range(10_000):
            try:
                appender.append(numbers(n))
            except FencedError:
                fenced.set()
                return
            acknowledged.append(n)

    writer = threading.Thread(target=write)
    writer.start()
    wait_until("five are acknowledged", lambda: len(acknowledged) >= 5, every_s=0)
    raise_epoch(table, Epoch(1, 1))
    version_of_fence = _version_of(table, 1)
    writer.join(60)
    assert fenced.is_set()
    assert written(table) == acknowledged
    assert DeltaTable(table).version() == version_of_fence


def _version_of(uri: str, epoch: int) -> int:
    """The version of the table in which the epoch was raised."""
    log = Path(uri) / "_delta_log"
    mark = f'"{Epoch(1, epoch).app_id}","version":{epoch}'
    (found,) = (p for p in log.glob("*.json") if mark in p.read_text().replace(" ", ""))
    return int(found.stem)


def test_a_zombie_s_batch_is_refused_whole(tmp_path: Path) -> None:
    root = str(tmp_path)
    ensure_tables(root)
    zombie = Sink(root, CoordinatorSettings(), epoch=EPOCH_0)
    for written_table in WRITTEN:
        raise_epoch(table_uri(root, written_table), Epoch(1, 1))
    with pytest.raises(FencedError):
        zombie.write([output(1, [commit_record(0, 1)], 1, 1)], "query", 0)
    with pytest.raises(FencedError):
        zombie.write([output(1)], "query", 1)
    for written_table in WRITTEN:
        assert not rows(root, written_table.name)
    assert RESPONSES in WRITTEN
