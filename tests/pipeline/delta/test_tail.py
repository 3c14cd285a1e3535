"""A tail sees each appended row once, and no row that was only moved."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyarrow.fs import PyFileSystem

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta import followed, identity
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.followed import TableFollower, TableTail, follow
from group_coordinator.pipeline.delta.log import LogGone
from group_coordinator.pipeline.delta.store_files import StoreFiles
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import RESPONSES, to_arrow
from tests.pipeline.rows import response


@pytest.fixture
def append(root):
    appender = Appender(Path(table_uri(root, RESPONSES)))
    return lambda *ids: appender.append(to_arrow(RESPONSES, [response(each) for each in ids]))


@pytest.fixture(params=["local", "remote"])
def open_tail(request, root):
    def tail():
        if request.param == "local":
            return follow(table_uri(root, RESPONSES), ["request_id"])
        uri = table_uri(root, RESPONSES)
        files = PyFileSystem(StoreFiles(uri))
        return TableTail(files, DeltaTable(uri).version(), ["request_id"])

    return tail


def seen(tail) -> list[str] | None:
    found = tail.poll()
    return None if found is None else sorted(found.column("request_id").to_pylist())


def test_it_begins_at_the_present_end(append, open_tail):
    append("old")
    tail = open_tail()
    assert seen(tail) is None
    append("a", "b")
    append("c")
    assert seen(tail) == ["a", "b", "c"]
    assert seen(tail) is None


def test_a_compaction_brings_nothing_new(root, append, open_tail):
    tail = open_tail()
    append("a")
    append("b")
    assert seen(tail) == ["a", "b"]
    DeltaTable(f"{root}/responses").optimize.compact()
    append("c")
    assert seen(tail) == ["c"]


# --- what is known of a table ---------------------------------------------------------------------


def joined(known, rows, _is_whole):
    return sorted({*(known or ()), *rows.column("request_id").to_pylist()})


def test_rows_that_could_not_be_taken_in_are_read_again(root, append):
    append("a")
    failures = iter([False, True, False])

    def take(known, rows, is_whole):
        if next(failures):
            raise ValueError("not now")
        return joined(known, rows, is_whole)

    table = TableFollower(table_uri(root, RESPONSES), ["request_id"], take, lambda: True)
    assert table.poll() and table.known == ["a"]
    append("b")
    with pytest.raises(ValueError, match="not now"):
        table.poll()
    assert table.known == ["a"]
    assert table.poll() and table.known == ["a", "b"]
    assert not table.poll()


def test_what_is_committed_while_a_table_is_read_whole_is_not_missed(root, append, monkeypatch):
    append("a")

    def late(uri, columns, refuses_removals):
        append("b")
        return follow(uri, columns, refuses_removals)

    monkeypatch.setattr(followed, "follow", late)
    table = TableFollower(table_uri(root, RESPONSES), ["request_id"], joined, lambda: True)
    table.poll()
    table.poll()
    assert table.known == ["a", "b"]


# --- a log that was cleaned up ------------------------------------------------------------------


def clean_up(root: str) -> int:
    """Leave of the log what comes from a new checkpoint on; return the checkpoint's version."""
    handle = DeltaTable(f"{root}/responses")
    handle.create_checkpoint()
    for commit in Path(root, "responses", "_delta_log").glob("*.json"):
        if int(commit.stem) <= handle.version():
            commit.unlink()
    return int(handle.version())


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(identity, "GONE_CHECK_S", 0)


def test_a_tail_that_slept_past_the_log_s_retention_is_told(root, append, open_tail, at_once):
    tail = open_tail()
    append("missed")
    assert clean_up(root) == 1
    append("later")
    with pytest.raises(LogGone, match="no longer has version 1"):
        tail.poll()


def test_a_tail_whose_data_file_was_deleted_is_told(root, append, open_tail):
    tail = open_tail()
    append("missed")
    for file in Path(root, "responses").glob("*.parquet"):
        file.unlink()
    with pytest.raises(LogGone, match=r"version 1 was deleted: .*part-"):
        tail.poll()


def test_a_tail_at_the_end_of_a_cleaned_log_is_not_behind(root, append, open_tail, at_once):
    tail = open_tail()
    append("a")
    assert seen(tail) == ["a"]
    assert clean_up(root) == 1
    assert seen(tail) is None
    append("b")
    assert seen(tail) == ["b"]


def test_a_commit_that_comes_with_its_checkpoint_during_the_look_is_not_gone(
    root, append, open_tail, at_once, monkeypatch
):
    tail = open_tail()
    noted = identity.noted_checkpoint

    def slow(files):
        monkeypatch.undo()
        append("a")
        DeltaTable(f"{root}/responses").create_checkpoint()
        return noted(files)

    monkeypatch.setattr(identity, "noted_checkpoint", slow)
    monkeypatch.setattr(identity, "GONE_CHECK_S", 0)
    assert seen(tail) is None
    assert seen(tail) == ["a"]


class Clocks:
    """A clock that stands still until it is set on."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    names: list[str] = []
    read = identity._read

    def counting(files, path):
        names.append(path.rpartition(".")[2])
        return read(files, path)

    monkeypatch.setattr(identity, "_read", counting)
    return names


CHECK = ["json", "_delta_log/_last_checkpoint"]


def test_a_look_is_one_attempt_to_open_a_commit(root, opened):
    clocks = Clocks()
    with clock.use(clocks):
        tail = follow(table_uri(root, RESPONSES), ["request_id"])
        for _ in range(100):
            assert seen(tail) is None
        assert opened == ["json"] * 100
        clocks.now_s += identity.GONE_CHECK_S
        assert seen(tail) is None
    assert opened[100:] == CHECK


def test_in_a_store_a_reader_that_looks_often_enough_asks_for_one_key(root, opened):
    uri = table_uri(root, RESPONSES)
    clocks = Clocks()
    with clock.use(clocks):
        tail = TableTail(PyFileSystem(StoreFiles(uri)), DeltaTable(uri).version(), ["request_id"])
        for _ in range(100):
            assert seen(tail) is None
            clocks.now_s += 30
        assert opened == [*CHECK, *["json"] * 99]
        clocks.now_s += 60
        assert seen(tail) is None
    assert opened[101:] == CHECK
