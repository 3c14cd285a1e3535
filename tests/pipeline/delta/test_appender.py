"""Appending: once for each (application, version), beside other writers, on one table."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import writer
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.log import Log
from group_coordinator.pipeline.delta.writer import AppendConflict
from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.schemas.tables import OFFSETS_TOPIC, RESPONSES, to_arrow
from tests.pipeline.rows import commit_record, response


@pytest.fixture
def folder(tmp_path) -> Path:
    ensure_table(str(tmp_path), RESPONSES)
    return tmp_path / "responses"


def batch(*ids: str) -> pa.Table:
    return to_arrow(RESPONSES, [response(each) for each in ids])


def ids(folder: Path) -> list[str]:
    return sorted(DeltaTable(str(folder)).to_pyarrow_table().column("request_id").to_pylist())


@pytest.fixture
def appender(folder):
    return Appender(folder)


def test_rows_arrive_and_a_version_counts_once(appender, folder):
    assert appender.last_version("query") == -1
    assert appender.append(batch("a", "b"), "query", 0)
    assert not appender.append(batch("c"), "query", 0)
    assert appender.append(batch("d"), "query", 3)
    assert not appender.append(batch("e"), "query", 2)
    assert appender.last_version("query") == 3
    assert ids(folder) == ["a", "b", "d"]


def test_another_writer_in_our_name_is_noticed(appender, folder):
    assert appender.append(batch("a"), "query", 0)
    properties = CommitProperties(app_transactions=[Transaction("query", 1)])
    write_deltalake(str(folder), batch("b"), mode="append", commit_properties=properties)
    appender.forget()
    assert not appender.append(batch("c"), "query", 1)
    assert ids(folder) == ["a", "b"]


def test_an_append_says_when_the_application_wrote(appender, folder):
    before = clock_ms()
    assert appender.append(batch("a"), "query", 0)
    (path,) = (folder / "_delta_log").glob("*1.json")
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    (written,) = [action["txn"] for action in actions if "txn" in action]
    assert (written["appId"], written["version"]) == ("query", 0)
    assert before <= written["lastUpdated"] <= clock_ms()


@pytest.mark.slow
def test_appends_of_several_writers_all_arrive(folder):
    def write(name: str) -> None:
        mine = Appender(folder)
        for i in range(20):
            mine.append(batch(f"{name}{i}"))

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids(folder) == sorted(f"{name}{i}" for name in "abc" for i in range(20))
    assert DeltaTable(str(folder)).version() == 60


def test_a_rewrite_beside_an_append_is_no_conflict(folder):
    appender = Appender(folder)
    appender.append(batch("a"))
    appender.append(batch("b"))
    DeltaTable(str(folder)).optimize.compact()
    DeltaTable(str(folder)).delete("request_id = 'a'")
    assert appender.append(batch("c"))
    assert ids(folder) == ["b", "c"]


def test_a_writer_that_slept_while_the_log_was_cleaned_does_not_write_into_the_past(folder):
    sleeper, busy = Appender(folder), Appender(folder)
    for i in range(5):
        busy.append(batch(str(i)))
    DeltaTable(str(folder)).create_checkpoint()
    for old in range(5):
        (folder / "_delta_log" / f"{old:020}.json").unlink()
    assert sleeper.append(batch("late"))
    assert DeltaTable(str(folder)).version() == 6
    assert "late" in ids(folder)


def test_a_checkpoint_is_written_now_and_then(folder, monkeypatch):
    monkeypatch.setattr(writer, "CHECKPOINT_EVERY", 2)
    started: list[tuple[str, int]] = []
    monkeypatch.setattr(writer, "checkpoint", lambda *of: started.append(of[:2]))
    appender = Appender(folder)
    for i in range(4):
        appender.append(batch(str(i)))
    assert started == [(str(folder), 2), (str(folder), 4)]


def test_losing_every_attempt_is_an_error(folder, monkeypatch):
    monkeypatch.setattr(writer, "ATTEMPTS", 3)
    monkeypatch.setattr(writer, "back_off", lambda _attempt: None)
    appender = Appender(folder)

    def taken(*_: object) -> None:
        raise FileExistsError

    monkeypatch.setattr(Log, "create", taken)
    with pytest.raises(AppendConflict, match=r"committed first to .*responses 3 times"):
        appender.append(batch("a"))


def test_a_partition_is_a_folder(tmp_path):
    ensure_table(str(tmp_path), OFFSETS_TOPIC)
    folder = tmp_path / "offsets_topic"
    columns = {"log_offset": pa.array([0]), "segment": pa.array([4])}
    Appender(folder).append(to_arrow(OFFSETS_TOPIC, [commit_record(0, 1)], columns))
    assert len(list((folder / "segment=4").glob("*.parquet"))) == 1
    (row,) = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    assert (row["segment"], row["offset_commit"]["offset"]) == (4, 1)
