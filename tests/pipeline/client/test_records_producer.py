"""A producer of records: what is sent is in its topic's table, in order and once, or fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from group_coordinator import Producer, RecordMetadata
from group_coordinator.pipeline.gateway.topic_logs import TopicLogs
from group_coordinator.pipeline.topics import create_log_topic
from tests.pipeline.topics.logs import make

LIMIT_S = 60.0


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "root")


def producer(root: str, **settings: Any) -> Producer:
    return Producer(root, **{"linger_ms": 0, **settings})


def values_of(root: str, partition: int = 0, topic: str = "t") -> list[bytes | None]:
    """The values of a partition, as a gateway's clients read them."""
    logs = TopicLogs(root)
    found: list[bytes | None] = []
    while len(found) < logs.bounds(topic, partition).end:
        read = logs.read(topic, partition, len(found), 1 << 30)
        assert [record.offset for record in read] == [*range(len(found), len(found) + len(read))]
        found += [record.value for record in read]
    return found


def test_what_is_sent_is_read_by_a_gateway_and_by_sql(root: str) -> None:
    topic = make(root, 2)
    with Producer(root, {"linger.ms": 20}) as sender:
        sent = sender.send("t", b"v", b"k", 1, 1_234, [("h", b"x"), ("n", None)])
        others = [sender.send("t", b"%d" % n, partition=0) for n in range(3)]
        assert sender.flush(LIMIT_S)
        assert sent.done()
        assert sent.result() == RecordMetadata("t", 1, 0, 1_234)
        assert [each.result().offset for each in others] == [0, 1, 2]
    (record,) = TopicLogs(root).read("t", 1, 0, 1_000)
    assert (record.key, record.value, record.timestamp_ms) == (b"k", b"v", 1_234)
    assert record.headers == (("h", b"x"), ("n", None))
    assert values_of(root) == [b"0", b"1", b"2"]
    rows = QueryBuilder().register("records", DeltaTable(topic.table))
    query = "SELECT arrow_cast(value, 'Utf8') v FROM records WHERE partition = 0 ORDER BY offset"
    assert pa.table(rows.execute(query).read_all()).column("v").to_pylist() == ["0", "1", "2"]
    assert DeltaTable(topic.table).version() == 1, "all of it is one commit"


def test_rows_of_a_table_are_sent_behind_what_was_sent(root: str) -> None:
    make(root, 2)
    rows = pa.table(
        {
            "value": ["a", "b", "c", None],
            "partition": [1, 0, 1, 1],
            "timestamp": [5, 6, 7, 8],
            "headers": [None, None, [{"key": "h", "value": b"1"}], None],
        }
    )
    with producer(root, linger_ms=1_000) as sender:
        first = sender.send("t", b"first", partition=1)
        table = sender.send_table("t", rows)
        last = sender.send("t", b"last", partition=1)
        assert sender.flush(LIMIT_S)
        assert (first.result().offset, last.result().offset) == (0, 4)
        assert [(each.partition, each.base_offset, each.count) for each in table.result()] == [
            (0, 0, 1),
            (1, 1, 3),
        ]
    assert values_of(root, 1) == [b"first", b"a", b"c", None, b"last"]
    assert values_of(root, 0) == [b"b"]
    found = TopicLogs(root).read("t", 1, 0, 1_000)
    assert [record.timestamp_ms for record in found[1:4]] == [5, 7, 8]
    assert [record.headers for record in found[1:4]] == [(), (("h", b"1"),), ()]


def test_a_topic_has_its_number_of_partitions(root: str) -> None:
    make(root, 3)
    create_log_topic(root, "one", 1)
    with producer(root) as sender:
        assert sender.partitions_for("t") == 3
        assert sender.partitions_for("one") == 1
