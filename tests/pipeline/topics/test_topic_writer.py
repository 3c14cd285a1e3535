"""What gateways and producers share: times that never fall, a deadline, columns of Arrow."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta.log import Log
from group_coordinator.pipeline.topics import (
    Appended,
    AppendStateUnknown,
    LogAppender,
    NewBatch,
    ProducerBatchLimit,
    TopicWriter,
)
from group_coordinator.pipeline.topics.record_batch import HEADERS
from tests.clocks import AheadClocks
from tests.pipeline.topics.logs import appender, batch, make, of_producer, offsets, values
from tests.pipeline.topics.tables import opened


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "root")


def test_the_time_of_the_append_never_falls_within_a_partition(
    root: str, clocks: AheadClocks
) -> None:
    """Another writer's clock may be ahead, and a clock may be set back."""
    topic = make(root, 2, message_timestamp_type="LogAppendTime")
    ahead, behind = (LogAppender(topic, is_append_time=True) for _ in range(2))
    clocks.wall_ahead_s = 3_600
    (first,) = ahead.append([batch(0, "a")])
    clocks.wall_ahead_s = 0
    second, other = behind.append([batch(0, "b"), batch(1, "c")])
    assert isinstance(first, Appended) and isinstance(second, Appended)
    assert isinstance(other, Appended)
    assert first.append_time is not None and other.append_time is not None
    assert second.append_time == first.append_time
    assert other.append_time < first.append_time
    topics = opened(root)
    read = topics.read("t", 0, 0, 1_000, 10)
    assert [record.timestamp_ms for record in read] == [first.append_time] * 2


def test_an_append_that_others_are_faster_than_ends_in_time(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make(root, 1)
    other, create = appender(topic), Log.create
    times = iter(range(3))

    def too_late(log: Log, *args: object) -> None:
        monkeypatch.setattr(Log, "create", create)
        if next(times, None) is not None:
            other.append([batch(0, "other")])
        monkeypatch.setattr(Log, "create", too_late)
        create(log, *args)

    writer = TopicWriter(topic)
    monkeypatch.setattr(Log, "create", too_late)
    (outcome,) = writer.append([batch(0, "a")], monotonic())
    assert isinstance(outcome, AppendStateUnknown)
    assert "records were not appended to topic 't' in time" in str(outcome)
    assert values(opened(root)) == [(0, "other")]
    monkeypatch.setattr(Log, "create", create)
    assert offsets(writer.append([batch(0, "a")], monotonic())) == [1]


def test_columns_may_be_arrow_s_beside_lists(root: str) -> None:
    topic = make(root, 1)
    headers = pa.chunked_array([[None], [[{"key": "h", "value": b"1"}]]], HEADERS)
    columns = [pa.chunked_array([each], pa.binary()) for each in ([b"k", None], [None, b"v"])]
    given = NewBatch(0, *columns, pa.chunked_array([[7], [5]], pa.int64()), headers)
    outcomes = appender(topic).append([batch(0, "a"), given, batch(0, "b")])
    assert offsets(outcomes) == [0, 1, 3]
    found = opened(root).read("t", 0, 0, 1_000, 10)
    assert [(each.key, each.value, each.timestamp_ms, each.headers) for each in found] == [
        (b"a", b"a", 1_000, ()),
        (b"k", None, 7, ()),
        (None, b"v", 5, (("h", b"1"),)),
        (b"b", b"b", 1_000, ()),
    ]


def test_a_commit_has_five_batches_of_a_producer_and_partition() -> None:
    """The log knows the last five again: of six that are repeated the first would be refused."""
    limit = ProducerBatchLimit()
    assert [limit.admits(0, 7) for _ in range(6)] == [True] * 5 + [False]
    assert limit.admits(1, 7) and limit.admits(0, 8)
    assert all(limit.admits(0, -1) for _ in range(9))


def test_a_topic_writer_tells_every_batch_what_failed(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    writer = TopicWriter(make(root, 1))
    with monkeypatch.context() as broken:
        broken.setattr(Log, "create", fails)
        outcomes = writer.append([of_producer(0, "a"), of_producer(1, "b")])
    assert [type(each) for each in outcomes] == [AppendStateUnknown] * 2
    assert offsets(writer.append([of_producer(0, "a"), of_producer(1, "b")])) == [0, 1]
