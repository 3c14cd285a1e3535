"""An appender that stands still between its look at the log and its commit, and others meanwhile.

Where the log was cleaned up meanwhile its version is free again, and its commit comes late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.admin.changes import delete_topic
from group_coordinator.pipeline.delta import storage
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.topics import LogAppender
from tests.clocks import AheadClocks
from tests.pipeline.topics.logs import appender, batch, make, offsets, values
from tests.pipeline.topics.tables import definition_of, opened


def held(
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    clocks: AheadClocks,
    meanwhile: Callable[[], Any],
    killed: bool = False,
) -> None:
    """Have the next commit stand still, after its look at the log, until `meanwhile` was done."""
    owner, name = (storage.os, "link") if place == "disk" else (ObjectStore, "put_absent")
    create = getattr(owner, name)

    def late(*arguments: Any) -> None:
        monkeypatch.setattr(owner, name, create)
        meanwhile()
        clocks.monotonic_ahead_s += ObjectStore.costs.freed_s
        clocks.wall_ahead_s += ObjectStore.costs.freed_s
        create(*arguments)
        if killed:
            raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, late)


def trim(table: str) -> None:
    """Delete all log files that a Delta checkpoint makes superfluous; bring what came late."""
    DeltaTable(table).create_checkpoint()
    trim_log(table, DeltaTable(table).version(), grace_s=0)


def go_on(writer: LogAppender, table: str) -> None:
    """Append elsewhere, and clean the log up beyond what was appended before."""
    for value in ("x", "y"):
        writer.append([batch(2, value)])
    trim(table)


def given_once(root: str, partition: int = 0) -> None:
    """Every offset of a partition is there once, and there is no gap."""
    found = Counter(
        row["offset"]
        for row in DeltaTable(made(root)).to_pyarrow_table().to_pylist()
        if row["partition"] == partition
    )
    assert found == Counter(range(len(found)))


def made(root: str) -> str:
    return definition_of(root).table


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "root")


def numbered(name: str, count: int) -> list[str]:
    return [f"{name}{n}" for n in range(count)]


def test_no_offset_is_given_twice_though_the_log_was_cleaned_up_meanwhile(
    root: str, place: str, clocks: AheadClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make(root)
    slow, fast = appender(topic), appender(topic)
    slow.append([batch(0, *numbered("a", 10))])

    def meanwhile() -> None:
        assert offsets(fast.append([batch(0, *numbered("b", 5))])) == [10]
        go_on(fast, topic.table)

    held(monkeypatch, place, clocks, meanwhile)
    assert offsets(slow.append([batch(0, *numbered("c", 10))])) == [15]
    trim(topic.table)
    assert values(opened(root)) == list(
        enumerate([*numbered("a", 10), *numbered("b", 5), *numbered("c", 10)])
    )
    given_once(root)


def kill_late(root: str, clocks: AheadClocks, monkeypatch: pytest.MonkeyPatch, other: int) -> None:
    """Kill an appender behind its late commit; another one has appended to partition `other`."""
    topic = make(root)
    slow, fast = appender(topic), appender(topic)
    slow.append([batch(0, *numbered("a", 10))])

    def meanwhile() -> None:
        fast.append([batch(other, *numbered("b", 5))])
        go_on(fast, topic.table)

    held(monkeypatch, "disk", clocks, meanwhile, killed=True)
    with pytest.raises(KeyboardInterrupt):
        slow.append([batch(0, *numbered("c", 10)), batch(1, "d")])
    trim(topic.table)


def test_what_a_killed_appender_committed_late_is_written_only_where_its_offsets_are_free(
    root: str, clocks: AheadClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client was told nothing, and sends the records again."""
    kill_late(root, clocks, monkeypatch, other=0)
    given_once(root)
    assert [value for _, value in values(opened(root))] == [
        *numbered("a", 10),
        *numbered("b", 5),
    ]
    assert values(opened(root), 1) == [], "a commit is written whole or not at all"


def test_what_a_killed_appender_committed_late_is_written_where_nobody_came_between(
    root: str, clocks: AheadClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_late(root, clocks, monkeypatch, other=2)
    topics = opened(root)
    assert values(topics) == list(enumerate([*numbered("a", 10), *numbered("c", 10)]))
    assert values(topics, 1) == [(0, "d")]


def test_who_stood_still_while_the_topic_was_deleted_writes_nothing(
    root: str, place: str, clocks: AheadClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make(root)
    slow, fast = appender(topic), appender(topic)
    slow.append([batch(0, "a")])

    def meanwhile() -> None:
        go_on(fast, topic.table)
        delete_topic(root, "t")
        trim(topic.table)

    held(monkeypatch, place, clocks, meanwhile)
    assert offsets(slow.append([batch(0, "late")])) == ["UnknownTopicOrPartition"]
    trim(topic.table)
    assert DeltaTable(topic.table).to_pyarrow_table().num_rows == 3
