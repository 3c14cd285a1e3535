"""A producer of records: what is sent is in its topic's table, in order and once, or fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from group_coordinator import (
    DeliveryFailed,
    InvalidColumns,
    NotProducible,
    Producer,
    RecordMetadata,
    RecordRefused,
    RecordTooLarge,
    SettingsError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from group_coordinator.pipeline.client import record_topics
from group_coordinator.pipeline.delta.followed import TableFollower
from group_coordinator.pipeline.gateway.topic_logs import TopicLogs
from group_coordinator.pipeline.tables.acl_table import add_acls, remove_acls
from group_coordinator.pipeline.tables.topic_catalogue import alter_topic, create_topic
from group_coordinator.pipeline.topics import create_log_topic
from group_coordinator.schemas.acls import AclBinding, AclFilter
from tests.pipeline.topics.logs import make
from tests.pipeline.topics.tables import append, define

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


# --- what is refused ------------------------------------------------------------------------------


def test_what_is_no_topic_for_records_is_refused_by_name(root: str, tmp_path: Path) -> None:
    append(str(tmp_path / "mine"), range(3))
    define(root, str(tmp_path / "mine"))
    create_topic(root, "bare", 2)
    rows = pa.table({"value": ["a"]})
    with producer(root) as sender:
        for topic, kind, says in [
            ("t", NotProducible, f"a user's table: write to the table {tmp_path / 'mine'} itself"),
            ("bare", NotProducible, "'bare' has no table, so it cannot store records"),
            ("no", UnknownTopicOrPartitionError, "no topic 'no' under .*`.* topics create no"),
        ]:
            for call in (
                lambda topic: sender.send(topic, b"a"),
                lambda topic: sender.send_table(topic, rows),
                sender.partitions_for,
            ):
                with pytest.raises(kind, match=says):
                    call(topic)


def test_acls_are_asked_and_what_they_say_holds_within_a_second(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_topics, "MAX_METADATA_AGE_S", 0.0)
    make(root, 1)
    monkeypatch.setenv("GROUP_COORDINATOR_PRINCIPAL", "User:bob")
    alice = AclBinding("TOPIC", "t", "LITERAL", "User:alice", "*", "WRITE", "ALLOW")
    add_acls(root, [alice])
    with producer(root) as bob, producer(root, super_users="User:ann;User:bob") as super_user:
        with pytest.raises(
            TopicAuthorizationError,
            match="User:bob is not authorized to write to topic 't': it needs WRITE",
        ):
            bob.send("t", b"a")
        assert super_user.send("t", b"s").result(LIMIT_S).offset == 0
    with producer(root, principal="User:alice") as allowed:
        assert allowed.send("t", b"a").result(LIMIT_S).offset == 1
        remove_acls(root, [AclFilter()])
        error = allowed.send("t", b"b").exception(LIMIT_S)
        assert isinstance(error, TopicAuthorizationError)
    assert values_of(root) == [b"s", b"a"]


def test_a_record_that_is_too_large_is_refused_and_its_neighbours_are_written(root: str) -> None:
    make(root, 1, max_message_bytes="500")
    values = [b"a", bytes(600), b"c"]
    with producer(root, max_request_size=2_000, linger_ms=1_000) as sender:
        with pytest.raises(RecordTooLarge, match=r"max.request.size is 2000"):
            sender.send("t", bytes(2_000))
        sent = [sender.send("t", value) for value in values]
        table = sender.send_table("t", pa.table({"value": values}))
        assert sender.flush(LIMIT_S)
        assert [type(each.exception()) for each in sent] == [type(None), RecordTooLarge, type(None)]
        assert [sent[place].result().offset for place in (0, 2)] == [0, 1]
        with pytest.raises(RecordTooLarge, match=r"682 bytes: max.message.bytes is 500"):
            sent[1].result()
        with pytest.raises(RecordTooLarge):
            table.result()
        with pytest.raises(RecordTooLarge):
            sender.send_table("t", pa.table({"value": [b"a", bytes(2_000)]}))
    assert values_of(root) == [b"a", b"c"] * 2


def test_a_batch_of_more_than_a_topic_takes_is_taken_apart(root: str) -> None:
    make(root, 1, max_message_bytes="500")
    with producer(root, linger_ms=1_000) as sender:
        sent = [sender.send("t", b"%d" % number) for number in range(40)]
        assert sender.flush(LIMIT_S)
        assert [each.result().offset for each in sent] == list(range(40))


def test_a_time_that_a_topic_does_not_take_is_refused_alone(root: str) -> None:
    make(root, 1)
    with producer(root, linger_ms=1_000) as sender:
        sent = [sender.send("t", b"a", timestamp_ms=at) for at in (5, 2**62, 7, -(2**62))]
        assert sender.flush(LIMIT_S)
        errors = [each.exception() for each in sent]
    assert [type(error) for error in errors[1::2]] == [RecordRefused] * 2
    assert errors[::2] == [None, None]
    assert [sent[place].result().offset for place in (0, 2)] == [0, 1]


def test_the_time_of_the_append_is_told(root: str) -> None:
    make(root, 1, message_timestamp_type="LogAppendTime")
    with producer(root) as sender:
        told = sender.send("t", b"a", timestamp_ms=5).result(LIMIT_S)
    (record,) = TopicLogs(root).read("t", 0, 0, 1_000)
    assert told.timestamp_ms == record.timestamp_ms > 5


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"key": ["a"]}, "columns key: records have a `value`"),
        ({"value": ["a"], "valeu": [1]}, "columns value, valeu"),
        ({"value": [1.5]}, "column 'value' cannot be binary"),
        ({"value": ["a"], "partition": pa.array([None], pa.int32())}, "'partition' has nulls"),
        ({"value": ["a"], "headers": [7]}, "column 'headers' cannot be"),
    ],
)
def test_columns_that_are_no_records_are_refused(
    root: str, columns: dict[str, Any], says: str
) -> None:
    make(root, 1)
    with producer(root) as sender, pytest.raises(InvalidColumns, match=says):
        sender.send_table("t", pa.table(columns))


def test_a_call_that_cannot_be_is_refused(root: str) -> None:
    make(root, 2)
    with producer(root) as sender:
        with pytest.raises(
            TypeError, match="value is str: pass bytes or None, or give the producer a serializer"
        ):
            sender.send("t", "text")
        with pytest.raises(ValueError, match="it must fit into 64 bits"):
            sender.send("t", b"a", timestamp_ms=2**63)
        # Or the whole commit would fail by it.
        wrong: Any
        for wrong in ({"timestamp_ms": 1.5}, {"partition": 0.5}):
            with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
                sender.send("t", b"a", **wrong)
        for wrong in ([(b"h", b"1")], [("h", "text")], [("h", 1)]):
            with pytest.raises(TypeError, match="the name must be str, the value bytes or None"):
                sender.send("t", b"a", headers=wrong)
        for partition in (2, -1):
            with pytest.raises(UnknownTopicOrPartitionError, match=f"no partition {partition}"):
                sender.send("t", b"a", partition=partition)
            with pytest.raises(UnknownTopicOrPartitionError, match=f"no partition {partition}"):
                sender.send_table("t", pa.table({"value": ["a"], "partition": [partition]}))
        assert sender.flush(LIMIT_S)
        assert sender._memory.used == 0, "what was refused takes no memory"
    for settings in ({"linger": 1}, {"acks": "0"}, {"partitioner": "sticki"}):
        with pytest.raises(SettingsError, match="the producer: unknown"):
            Producer(root, **settings)


def test_a_topic_that_cannot_be_read_is_tried_again_and_then_told_of(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root, 1)
    polls = iter([OSError(5, "Input/output error")])
    poll = TableFollower.poll

    def fails(*args: Any) -> Any:
        for error in polls:
            raise error
        return poll(*args)

    monkeypatch.setattr(TableFollower, "poll", fails)
    with producer(root, retry_backoff_ms=0) as sender:
        assert sender.partitions_for("t") == 1
        polls = iter([OSError(5, "Input/output error")] * 1_000)
        with pytest.raises(DeliveryFailed, match=r"could not be read for max.block.ms"):
            producer(root, max_block_ms=0).send("t", b"a")


# --- where records go -----------------------------------------------------------------------------


def test_keys_of_a_table_go_where_keys_of_records_go(root: str) -> None:
    make(root, 7)
    keys = [b"k%d" % number for number in range(30)]
    with producer(root) as sender:
        sent = [sender.send("t", b"", key=key) for key in keys]
        places = [each.result(LIMIT_S).partition for each in sent]
        sender.send_table("t", pa.table({"key": keys, "value": keys})).result(LIMIT_S)
    for partition in range(7):
        mine = [key for key, place in zip(keys, places, strict=True) if place == partition]
        assert values_of(root, partition) == [b""] * len(mine) + mine


@pytest.mark.parametrize("how", ["default", "round_robin", lambda *_: 2])
def test_rows_without_keys_go_where_the_partitioner_says(root: str, how: Any) -> None:
    make(root, 3)
    rows = pa.table({"value": [f"{number}" for number in range(6)]})
    with producer(root, partitioner=how) as sender:
        found = sender.send_table("t", rows).result(LIMIT_S)
    counts = {each.partition: each.count for each in found}
    if how == "default":
        assert list(counts.values()) == [6]
    else:
        assert counts == ({0: 2, 1: 2, 2: 2} if how == "round_robin" else {2: 6})


def test_serializers_make_bytes(root: str) -> None:
    make(root, 1)
    with producer(
        root, value_serializer=str.encode, key_serializer=lambda key: b"%d" % key
    ) as sender:
        sender.send("t", "text", key=7).result(LIMIT_S)
    (record,) = TopicLogs(root).read("t", 0, 0, 1_000)
    assert (record.key, record.value) == (b"7", b"text")


def test_a_topic_that_grows_has_records_in_its_new_partitions(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_topics, "MAX_METADATA_AGE_S", 0.0)
    make(root, 1)
    with producer(root) as sender:
        sender.send("t", b"a").result(LIMIT_S)
        alter_topic(root, "t", 2)
        # The next commit looks.
        sender.send("t", b"b").result(LIMIT_S)
        assert sender.send("t", b"c", partition=1).result(LIMIT_S).partition == 1


def test_a_table_larger_than_the_buffer_is_sent_in_parts(root: str) -> None:
    make(root, 2)
    values = [b"%03d" % number for number in range(200)]
    rows = pa.table({"value": values, "partition": [number % 2 for number in range(200)]})
    with producer(root, buffer_memory=1_000) as sender:
        found = sender.send_table("t", rows).result(LIMIT_S)
        assert sum(each.count for each in found) == 200
        assert len(found) > 30
        assert sender.send_table("t", rows.slice(0, 0)).result() == []
    assert values_of(root, 0) == values[::2]
    assert values_of(root, 1) == values[1::2]
