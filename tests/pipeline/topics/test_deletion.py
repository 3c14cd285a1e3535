"""A topic that is deleted, while somebody who has not heard of it appends to its table."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.admin.changes import delete_topic
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.commit import Changes, Move
from group_coordinator.pipeline.delta.log import Log
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.writer import Writer
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.pipeline.tables.topic_catalogue import TopicExists, UnknownTopic, read_newest
from group_coordinator.pipeline.topics import create_log_topic, log_topics
from group_coordinator.schemas.tables import TOPICS
from tests.clocks import AheadClocks
from tests.pipeline.topics.logs import appender, batch, make, of_producer, offsets, values
from tests.pipeline.topics.tables import append, define, opened

GONE = "UnknownTopicOrPartition"


pytestmark = pytest.mark.usefixtures("place")


def rows_of(table: str) -> int:
    return int(DeltaTable(table).to_pyarrow_table().num_rows)


def test_who_has_not_heard_that_it_was_made_anew_appends_to_neither(root: str) -> None:
    old = make(root)
    elsewhere = appender(old)
    elsewhere.append([batch(0, "before")])
    delete_topic(root, "t")
    # Upkeep may have been under way.
    Writer(old.table, flushed=False).commit(Changes(moves=[Move("run", None, 1)]))
    new = make(root)
    assert new.table != old.table
    for _ in range(2):
        assert offsets(elsewhere.append([batch(0, "late"), of_producer(0, "late")])) == [GONE] * 2
    assert rows_of(old.table) == 1
    assert offsets(appender(new).append([batch(0, "a")])) == [0]
    assert values(opened(root)) == [(0, "a")]


def test_nor_does_who_has_just_looked(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make(root)
    other = create_log_topic(root, "other", 1)
    commit = Log.create

    def late(self: Log, *arguments: Any) -> None:
        monkeypatch.setattr(Log, "create", commit)
        delete_topic(root, "t")
        commit(self, *arguments)

    elsewhere = appender(old)
    monkeypatch.setattr(Log, "create", late)
    assert offsets(elsewhere.append([batch(0, "late")])) == [GONE]
    assert rows_of(old.table) == 0
    assert DeltaTable(Path(root, other.table)).version() == 0, "other topics go on"
    assert not list(Path(old.table).rglob("*.parquet")), "what it had written is deleted"


def test_what_was_appended_before_is_acknowledged(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make(root)
    commit = Log.create

    def overtaken(self: Log, *arguments: Any) -> None:
        monkeypatch.setattr(Log, "create", commit)
        commit(self, *arguments)
        delete_topic(root, "t")

    monkeypatch.setattr(Log, "create", overtaken)
    assert offsets(appender(old).append([batch(0, "in time")])) == [0]


def test_one_that_was_made_anew_while_its_deletion_stood_still_goes_on(root: str) -> None:
    """The deletion has looked at the catalogue, and has not told the table yet."""
    make(root)
    looks = []

    def stand_still() -> None:
        looks.append(read_newest(root)["t"].partitions)
        if len(looks) > 1:
            raise Failure("whoever asked for it has given up")
        delete_topic(root, "t")
        make(root)

    with pytest.raises(Failure, match="given up"):
        delete_topic(root, "t", stand_still)
    assert len(looks) == 2
    (new,), _ = log_topics(root)
    assert offsets(appender(new).append([batch(0, "a")])) == [0]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("which", [0, 1], ids=["before the table", "before the catalogue"])
@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
def test_a_deletion_that_was_killed_can_be_repeated(
    root: str, monkeypatch: pytest.MonkeyPatch, which: int, done: bool
) -> None:
    old = make(root)
    elsewhere = appender(old)
    append = Appender.append
    calls: list[str] = []

    def killed(self: Appender, *arguments: Any) -> bool:
        calls.append(self._uri)
        if len(calls) <= which:
            return append(self, *arguments)
        if done:
            append(self, *arguments)
        raise Killed

    with monkeypatch.context() as killing:
        killing.setattr(Appender, "append", killed)
        with pytest.raises(Killed):
            delete_topic(root, "t")
    assert calls == [old.table, table_uri(root, TOPICS)][: which + 1]
    is_marked, is_deleted = which == 1 or done, which == 1 and done
    assert offsets(elsewhere.append([batch(0, "a")])) == [GONE if is_marked else 0]
    if is_deleted:
        with pytest.raises(UnknownTopic):
            delete_topic(root, "t")
    else:
        with pytest.raises(TopicExists):
            create_log_topic(root, "t", 1)
        delete_topic(root, "t")
    new = make(root)
    assert offsets(appender(new).append([batch(0, "b")])) == [0]
    assert offsets(elsewhere.append([batch(0, "late")])) == [GONE]


def test_a_user_s_table_is_left_alone(root: str, tmp_path: Path) -> None:
    table = str(tmp_path / "rows")
    append(table, range(3))
    define(root, table)
    before = DeltaTable(table).version()
    delete_topic(root, "t")
    assert DeltaTable(table).version() == before


def test_a_topic_whose_table_is_lost_can_be_deleted(root: str) -> None:
    shutil.rmtree(make(root).table)
    delete_topic(root, "t")
    assert opened(root).topics() == {}


def test_who_comes_when_the_files_are_gone_is_told_nothing_else_than_an_error(
    root: str, clocks: AheadClocks
) -> None:
    """Upkeep deletes them an hour later: nobody stands still for so long between look and PUT."""
    old = make(root)
    elsewhere = appender(old)
    elsewhere.append([batch(0, "before")])
    delete_topic(root, "t")
    shutil.rmtree(old.table)
    clocks.monotonic_ahead_s += ObjectStore.costs.freed_s
    with pytest.raises((OSError, Failure)):
        elsewhere.append([batch(0, "late")])
