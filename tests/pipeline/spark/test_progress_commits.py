"""Streaming queries as groups: what of their progress is committed, and what when it is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.spark import ProgressCommits, progress_commits
from group_coordinator.pipeline.spark.source_offsets import (
    DeltaPosition,
    SourceOffsets,
    TableOffsets,
    decode_source_offset,
)
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from group_coordinator.pipeline.topics import create_table_topic
from group_coordinator.pipeline.topics.topic_errors import CannotFollow
from tests.pipeline.small import SmallCoordinator
from tests.pipeline.topics.logs import appender, batch, make
from tests.pipeline.topics.tables import append, define

KAFKA = "KafkaV2[Subscribe[orders]]"
PYTHON = (
    "org.apache.spark.sql.execution.datasources.v2.python."
    "PythonMicroBatchStreamWithTriggerAvailableNow@3d62a997"
)


@pytest.fixture
def coordinator(root: str) -> Iterator[SmallCoordinator]:
    coordinator = SmallCoordinator(root)
    yield coordinator
    coordinator.stop()


@pytest.fixture
def listener(root: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProgressCommits]:
    listener = ProgressCommits(root, "job")
    yield listener
    listener.close(0.0)


def progress(batch_id: int, *sources: tuple[str, Any], name: str = "q") -> Any:
    """An event, as Spark makes it."""
    told = [
        SimpleNamespace(description=description, endOffset=json.dumps(end))
        for description, end in sources
    ]
    return SimpleNamespace(
        progress=SimpleNamespace(name=name, id="i", batchId=batch_id, sources=told)
    )


def kafka(batch_id: int, **offsets: int) -> Any:
    return progress(
        batch_id, (KAFKA, {"orders": {p.removeprefix("p"): n for p, n in offsets.items()}})
    )


def committed(root: str) -> list[Any]:
    asked = 'SELECT topic, "partition", committed_offset FROM committed_offsets ORDER BY ALL'
    return Catalog(root).query(asked).rows


def history(root: str) -> list[int]:
    asked = "SELECT committed_offset FROM offset_history ORDER BY log_offset"
    return [offset for (offset,) in Catalog(root).query(asked).rows]


def settle(listener: ProgressCommits) -> None:
    """Wait until what was told is committed."""
    with listener._changed:
        assert listener._changed.wait_for(
            lambda: not listener._newest and not listener._is_sending, 30
        )


@pytest.mark.usefixtures("coordinator")
def test_the_progress_of_a_query_is_committed(root: str, listener: ProgressCommits) -> None:
    listener.onQueryProgress(kafka(7, p0=23, p1=5))
    settle(listener)
    assert committed(root) == [("orders", 0, 23), ("orders", 1, 5)]
    ((metadata,),) = Catalog(root).query("SELECT DISTINCT metadata FROM committed_offsets").rows
    assert metadata == "q, batch 7"


@pytest.mark.usefixtures("coordinator")
def test_progress_that_repeats_is_committed_once_an_hour(
    root: str, listener: ProgressCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch_id in range(3):
        listener.onQueryProgress(kafka(batch_id, p0=23))
        settle(listener)
    assert history(root) == [23]
    monkeypatch.setattr(progress_commits, "REPEAT_S", 0.0)
    listener.onQueryProgress(kafka(3, p0=23))
    settle(listener)
    assert history(root) == [23, 23]


@pytest.mark.usefixtures("coordinator")
def test_a_query_that_lost_its_checkpoint_takes_its_group_back(
    root: str, listener: ProgressCommits, caplog: pytest.LogCaptureFixture
) -> None:
    for batch_id, offset in ((9, 50), (0, 3)):
        listener.onQueryProgress(kafka(batch_id, p0=offset))
        settle(listener)
    assert history(root) == [50, 3]
    assert "query q went back in orders-0, from 50 to 3" in caplog.text


def test_while_the_coordinator_is_away_the_query_goes_on_and_its_newest_progress_waits(
    root: str, coordinator: SmallCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator.pause()
    listener = ProgressCommits(root, "job", request_timeout_ms=50)
    for batch_id in range(100):
        listener.onQueryProgress(kafka(batch_id, p0=batch_id))
    assert not listener.close(0.2)
    coordinator.resume()
    again = ProgressCommits(root, "job")
    again.onQueryProgress(kafka(100, p0=100))
    assert again.close(30)
    assert committed(root) == [("orders", 0, 100)]
    assert caplog.text.count("no answer within 0.05 s") == 1


def test_a_query_does_not_wait_for_the_answer(root: str, coordinator: SmallCoordinator) -> None:
    coordinator.pause()
    listener = ProgressCommits(root, "job", request_timeout_ms=3_600_000)
    for batch_id in range(3):
        listener.onQueryProgress(kafka(batch_id, p0=batch_id))
    coordinator.resume()
    assert listener.close(30)
    assert committed(root) == [("orders", 0, 2)]


def test_where_no_coordinator_has_run_yet_it_is_waited_for(tmp_path: Any) -> None:
    listener = ProgressCommits(str(tmp_path), "job")
    listener.onQueryProgress(kafka(0, p0=1))
    assert not listener.close(0.2)


@pytest.mark.usefixtures("coordinator")
def test_what_the_coordinator_refuses_is_said_once_and_the_rest_is_committed(
    root: str, listener: ProgressCommits, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(root, "orders", 1)
    for batch_id in range(2):
        listener.onQueryProgress(kafka(batch_id, p0=batch_id + 1, p1=batch_id + 1))
        settle(listener)
    assert committed(root) == [("orders", 0, 2)]
    assert caplog.text.count("orders-1 is not committed: UNKNOWN_TOPIC_OR_PARTITION") == 1


@pytest.mark.usefixtures("coordinator")
def test_only_the_queries_of_the_group_are_committed(root: str) -> None:
    listener = ProgressCommits(root, "job", ["mine"])
    listener.onQueryProgress(progress(1, (KAFKA, {"orders": {"0": 1}}), name="other"))
    listener.onQueryProgress(progress(1, (KAFKA, {"orders": {"0": 2}}), name="mine"))
    assert listener.close(30)
    assert history(root) == [2]


# --- sources --------------------------------------------------------------------------------------

DELTA = {"sourceVersion": 1, "reservoirId": "i", "reservoirVersion": 5, "index": -1}


@pytest.mark.parametrize(
    ("description", "end", "meant"),
    [
        (KAFKA, {"a": {"0": 3, "1": 4}, "b": {"0": 0}}, {("a", 0): 3, ("a", 1): 4, ("b", 0): 0}),
        ("KafkaV2[SubscribePattern[.*]]", {"a": {"0": 3}}, {("a", 0): 3}),
        (
            "RateStreamV2[rowsPerSecond=1, rampUpTimeSeconds=0, numPartitions=2",
            17,
            {("rate", 0): 17},
        ),
        (
            PYTHON,
            {"a": {"0": 3, "1": 4, "topicId": "5c6c"}},
            {("a", 0): 3, ("a", 1): 4},
        ),
        ("RatePerMicroBatch[rowsPerBatch=10]", {"offset": 40, "timestamp": 4}, {("rate", 0): 40}),
    ],
)
def test_the_offsets_of_a_source_are_the_next_ones_to_read(
    description: str, end: Any, meant: Any
) -> None:
    assert decode_source_offset(description, json.dumps(end)) == SourceOffsets(meant)


def test_a_delta_source_has_read_the_versions_before_its_own() -> None:
    found = decode_source_offset("DeltaSource[file:/data/orders]", json.dumps(DELTA))
    assert found == DeltaPosition("file:/data/orders", 5)


@pytest.mark.parametrize(
    ("description", "end"),
    [
        (KAFKA, "null"),
        (KAFKA, None),
        # Sources of other Python programs.
        (PYTHON, json.dumps({"a": {"0": 3}})),
        (PYTHON, json.dumps({"offset": 5})),
        (KAFKA, "[1]"),
        ("DeltaSource[/t]", json.dumps({**DELTA, "isStartingVersion": True})),
        ("DeltaSource[/t]", "{}"),
        ("FileStreamSource[file:/in]", json.dumps({"logOffset": 3})),
        ("RateStreamV2[", json.dumps({"a": 1})),
    ],
)
def test_of_other_sources_and_states_nothing_is_committed(description: str, end: Any) -> None:
    assert decode_source_offset(description, end) is None


@pytest.mark.slow
def test_a_version_of_a_users_table_is_the_offsets_of_its_topic(root: str, tmp_path: Any) -> None:
    table = str(tmp_path / "rows")
    append(table, range(10))
    append(table, range(10, 30))
    define(root, table, 2)
    offsets = TableOffsets(root)
    for version, rows in ((0, 0), (1, 10), (2, 30)):
        found = offsets.of(DeltaPosition(f"file:{table}", version))
        assert sum(found.values()) == rows
    assert {topic for topic, _ in found} == {"t"}


def test_each_users_table_of_a_group_is_indexed(root: str, tmp_path: Any) -> None:
    offsets = TableOffsets(root)
    for name in ("one", "other"):
        table = str(tmp_path / name)
        append(table, range(10))
        create_table_topic(root, name, 1, table, key="id")
        assert offsets.of(DeltaPosition(table, 1)) == {(name, 0): 10}


def test_offsets_that_cannot_be_read_are_unknown_and_not_none(root: str, tmp_path: Any) -> None:
    table = tmp_path / "table"
    append(str(table), range(10))
    define(root, str(table), 1)
    (data,) = table.glob("*.parquet")
    data.unlink()
    with pytest.raises(CannotFollow, match="before its rows were indexed"):
        TableOffsets(root).of(DeltaPosition(str(table), 1))


def test_a_version_of_a_topics_own_table_is_the_offsets_of_that_topic(root: str) -> None:
    topic = make(root)
    log_appender = appender(topic)
    for partition in (0, 0, 1):
        log_appender.append([batch(partition, "a", "b")])
    version = DeltaTable(topic.table).version() + 1
    offsets = TableOffsets(root)
    assert offsets.of(DeltaPosition(topic.table, version)) == {("t", 0): 4, ("t", 1): 2}
    assert offsets.of(DeltaPosition(topic.table, version - 1)) == {("t", 0): 4}
    assert offsets.of(DeltaPosition(topic.table, 0)) == {}


def test_a_table_that_is_no_topic_is_a_partition_of_versions(root: str, tmp_path: Any) -> None:
    found = TableOffsets(root).of(DeltaPosition(f"file:{tmp_path}/some where", 4))
    assert found == {("some_where", 0): 4}
