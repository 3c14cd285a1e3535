"""Each start of a node has a folder of its own, with what the start before has left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.delta.appender import Epoch, FencedError
from group_coordinator.pipeline.delta.object_store import Listed
from group_coordinator.pipeline.node import resumption
from group_coordinator.pipeline.node.node import start
from group_coordinator.pipeline.node.resumption import (
    bootstrap_uri,
    checkpoint_uri,
    stream_uri,
    tables_folder,
    take_folder,
)
from group_coordinator.pipeline.settings import Settings
from group_coordinator.pipeline.stream.offset import Planned
from tests.pipeline.node.fake_engine import FakeEngine

BY_FIRST, BY_SECOND = Planned(1, "{}"), Planned(2, "{}")


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


def take(engine: FakeEngine, root: str, epoch: int, *earlier: int) -> str:
    return take_folder(engine, root, Epoch(1, epoch), [*earlier, epoch])


def folders(root: str) -> list[str]:
    return sorted(each.name for each in Path(checkpoint_uri(root, 1)).iterdir())


def test_a_start_goes_on_with_what_the_one_before_has_left(engine, root):
    first = take(engine, root, 3)
    engine.planned[stream_uri(first)] = BY_FIRST
    before = DeltaTable(bootstrap_uri(first)).metadata().id
    second = take(engine, root, 8, 3)
    assert engine.planned == {stream_uri(second): BY_FIRST}
    assert DeltaTable(bootstrap_uri(second)).metadata().id == before
    assert folders(root) == ["epoch-8"]


def test_what_an_earlier_start_writes_later_reaches_nobody(engine, root):
    first = take(engine, root, 3)
    engine.planned[stream_uri(first)] = BY_FIRST
    second = take(engine, root, 8, 3)
    engine.planned[stream_uri(second)] = BY_SECOND
    # The first start wakes up: it finds nothing, and begins afresh.
    engine.delete_checkpoint(stream_uri(first))
    Path(bootstrap_uri(first)).mkdir(parents=True)
    engine.planned[stream_uri(first)] = BY_FIRST
    assert engine.planned[stream_uri(second)] == BY_SECOND
    third = take(engine, root, 12, 3, 8)
    assert engine.planned == {stream_uri(third): BY_SECOND}
    assert folders(root) == ["epoch-12"], "and what it wrote is cleaned up"


def test_a_start_that_was_killed_before_it_took_the_folder_has_changed_nothing(engine, root):
    first = take(engine, root, 3)
    engine.planned[stream_uri(first)] = BY_FIRST
    # The start of epoch 8 was killed once it was fenced.
    third = take(engine, root, 12, 3, 8)
    assert engine.planned == {stream_uri(third): BY_FIRST}


def test_a_start_that_was_killed_once_it_had_a_folder_hands_it_on_as_it_is(engine, root):
    first = take(engine, root, 3)
    shutil.rmtree(first)
    take(engine, root, 8, 3)
    # Killed before its query began; meanwhile the first start has made its folder anew.
    Path(bootstrap_uri(first)).mkdir(parents=True)
    engine.planned[stream_uri(first)] = BY_FIRST
    take(engine, root, 12, 3, 8)
    assert engine.planned == {}, "nobody knows what the first start's folder is worth"


def test_a_start_that_wakes_up_late_takes_nothing_from_a_later_one(engine, root):
    first = take(engine, root, 3)
    engine.planned[stream_uri(first)] = BY_FIRST
    third = take(engine, root, 12, 3, 8)
    take(engine, root, 8, 3)
    assert engine.planned == {stream_uri(third): BY_FIRST}


def test_a_store_that_cannot_rename_gives_a_start_nothing(engine, root, monkeypatch):
    first = take(engine, root, 3)
    engine.planned[stream_uri(first)] = BY_FIRST
    monkeypatch.setattr(engine, "move", lambda _folder, _target: False)
    second = take(engine, root, 8, 3)
    assert engine.planned == {}
    assert DeltaTable.is_deltatable(bootstrap_uri(second))
    assert folders(root) == ["epoch-8"]


def test_a_node_that_was_started_again_leaves_the_later_start_alone(root):
    disk: dict[str, Planned] = {}
    zombie, twin = FakeEngine(disk), FakeEngine(disk)
    first = start(zombie, root, Settings())
    second = start(twin, root, Settings())
    try:
        (stream,) = disk
        assert f"epoch-{second.epoch.number}" in stream
        with pytest.raises(FencedError):
            first.poll()
        assert list(disk) == [stream]
    finally:
        first.abandon()
        second.abandon()


class WithHdfs(FakeEngine):
    """An engine that reaches an HDFS, which is a folder to itself: `hdfs://` is nobody else's."""

    def __init__(self, hdfs: Path) -> None:
        super().__init__()
        self._hdfs = hdfs

    def move(self, folder: str, target: str) -> bool:
        return super().move(self._there(folder), self._there(target))

    def delete_checkpoint(self, checkpoint: str) -> None:
        super().delete_checkpoint(self._there(checkpoint))

    def write(self, checkpoint: str) -> None:
        """Write a streaming checkpoint, as the first batch of a query does."""
        Path(self._there(checkpoint)).mkdir(parents=True)

    def has(self, checkpoint: str) -> bool:
        return Path(self._there(checkpoint)).exists()

    def _there(self, uri: str) -> str:
        return uri.replace("hdfs://name", str(self._hdfs))


class Killed(BaseException):
    pass


def killed(*_: str) -> bool:
    raise Killed


HDFS = "hdfs://name/streams"


def id_of_tables(root: str, epoch: int) -> str:
    folder = tables_folder(root, Epoch(1, epoch), HDFS)
    assert folder.startswith(f"{root}/"), "where Python reaches it"
    return str(DeltaTable(bootstrap_uri(folder)).metadata().id)


def test_a_streaming_checkpoint_in_an_hdfs_is_taken_with_its_tables_beside_the_root_s(
    root, tmp_path
):
    engine = WithHdfs(tmp_path / "hdfs")
    first = take_folder(engine, root, Epoch(1, 3), [3], HDFS)
    assert first.startswith(HDFS)
    engine.write(stream_uri(first))
    before = id_of_tables(root, 3)
    second = take_folder(engine, root, Epoch(1, 8), [3, 8], HDFS)
    assert engine.has(stream_uri(second)) and not engine.has(first)
    assert id_of_tables(root, 8) == before
    assert folders(root) == ["epoch-8"]


def test_a_start_that_was_killed_between_the_two_leaves_nothing_to_take(
    root, tmp_path, monkeypatch
):
    engine = WithHdfs(tmp_path / "hdfs")
    first = take_folder(engine, root, Epoch(1, 3), [3], HDFS)
    engine.write(stream_uri(first))
    before = id_of_tables(root, 3)
    with monkeypatch.context() as patched:
        patched.setattr(resumption, "_move_tables", killed)
        with pytest.raises(Killed):
            take_folder(engine, root, Epoch(1, 8), [3, 8], HDFS)
    third = take_folder(engine, root, Epoch(1, 12), [3, 8, 12], HDFS)
    assert not engine.has(stream_uri(third)), "it begins from the tables"
    assert id_of_tables(root, 12) != before
    assert folders(root) == ["epoch-12"]


def test_beside_a_root_in_a_store_the_tables_are_not_taken_and_do_not_stay(tmp_path, monkeypatch):
    there: list[str] = []

    class Store:
        """An object store that Python reaches, and Spark does not."""

        def __init__(self, uri: str) -> None:
            self._below = f"{uri}/"

        def list(self) -> list[Listed]:
            mine = [each for each in there if each.startswith(self._below)]
            return [Listed(each.removeprefix(self._below), 1, 0) for each in mine]

        def delete(self, paths: list[str]) -> None:
            for each in paths:
                there.remove(self._below + each)

    monkeypatch.setattr(resumption, "ObjectStore", Store)
    monkeypatch.setattr(resumption, "write_deltalake", lambda uri, *_, **__: there.append(uri))
    engine, root = WithHdfs(tmp_path / "hdfs"), "s3a://bucket/groups"
    first = take_folder(engine, root, Epoch(1, 3), [3], HDFS)
    engine.write(stream_uri(first))
    second = take_folder(engine, root, Epoch(1, 8), [3, 8], HDFS)
    assert not engine.has(first) and not engine.has(stream_uri(second))
    assert there == [bootstrap_uri(tables_folder(root, Epoch(1, 8), HDFS))]
    assert there[0].startswith(f"{root}/_checkpoints/")
