"""Unmodified clients produce to topics of our own, and consume what was produced."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.consumer.group import HeartbeatResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from group_coordinator.pipeline.admin.changes import delete_topic
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.storage import CommitStateUnknown
from group_coordinator.pipeline.gateway.apis import fetch
from group_coordinator.pipeline.gateway.brokers import Broker
from group_coordinator.pipeline.gateway.default_record_batch import encode_batch
from group_coordinator.pipeline.gateway_settings import GatewaySettings
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from group_coordinator.pipeline.topics import (
    LogAppender,
    ProducerIdManager,
    Record,
    TableTopics,
    create_log_topic,
    producer_state,
)
from group_coordinator.pipeline.topics.definition import Definitions
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.tables import GATEWAYS
from tests.pipeline.gateway.raw import connected, heartbeat
from tests.pipeline.gateway.running import coordinator, gateway
from tests.pipeline.topics.tables import definition_of
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root(empty_root: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("produce"))
    shutil.copytree(empty_root, root, dirs_exist_ok=True)
    return root


@pytest.fixture(scope="module")
def broker(root: str) -> Iterator[Broker]:
    with coordinator(root), gateway(root) as running:
        yield running


def address(broker: Broker) -> str:
    return f"{broker.host}:{broker.port}"


def produced(broker: Broker, topic: str, messages: list[dict[str, Any]], **settings: Any) -> Any:
    """What librdkafka was told of each message: its error, or its partition and offset."""
    told: list[Any] = []

    def on_delivery(error: Any, message: Any) -> None:
        told.append(error.code() if error else (message.partition(), message.offset()))

    producer = confluent_kafka.Producer({"bootstrap.servers": address(broker), **settings})
    for message in messages:
        producer.produce(topic, on_delivery=on_delivery, **message)
    assert producer.flush(30) == 0
    return told


def consumed(broker: Broker, topic: str, count: int) -> list[Any]:
    """So many messages, by librdkafka, from the beginning of every partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address(broker),
            "group.id": f"reads-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
    found: list[Any] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        found.append(message)
    consumer.close()
    return found


def create(broker: Broker, topic: str, partitions: int = 1, **config: str) -> None:
    """Create a topic through a gateway, which knows of it from then on."""
    named = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": address(broker)})
    wanted = NewTopic(topic, num_partitions=partitions, config=named)
    admin.create_topics([wanted])[topic].result(30)


def test_librdkafka_produces_and_consumes(broker: Broker, root: str) -> None:
    create(broker, "made", 3)
    messages = [
        {
            "key": b"k%d" % (n % 10),
            "value": b"v%d" % n,
            "headers": [("n", b"%d" % n), ("0", None)],
        }
        for n in range(1_000)
    ]
    messages += [
        {"value": b"no key", "partition": 0, "timestamp": 5},
        {"key": b"k", "partition": 1},
    ]
    told = produced(broker, "made", messages, acks="all")
    assert len(set(told)) == 1_002
    found = consumed(broker, "made", 1_002)
    assert sorted((each.partition(), each.offset()) for each in found) == sorted(told)
    for partition in range(3):
        mine = [each.offset() for each in found if each.partition() == partition]
        assert mine == list(range(len(mine)))
    of_value = {each.value(): each for each in found}
    assert of_value[b"v17"].key() == b"k7"
    assert of_value[b"v17"].headers() == [("n", b"17"), ("0", None)]
    assert of_value[b"no key"].key() is None
    assert of_value[b"no key"].timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 5)
    assert of_value[None].key() == b"k"
    definition = definition_of(root, "made")
    rows = DeltaTable(definition.table).to_pyarrow_table()
    assert rows.num_rows == 1_002
    assert {"key", "value", "topic", "partition", "offset", "timestamp", "timestampType"} < set(
        rows.column_names
    )


def test_a_topic_may_be_created_by_its_first_use(broker: Broker, root: str) -> None:
    # By default a name that nobody has created stays unknown, whoever asks for it.
    unknown = confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert first_error(broker, "used") == unknown
    settings = GatewaySettings(auto_create_topics_enable=True, num_partitions=2)
    with gateway(root, settings=settings) as creating:
        # The other gateway leads some of the partitions, and learns of them at its next look.
        assert sorted(produced(creating, "used", [{"value": b"x", "partition": 1}])) == [(1, 0)]
        # librdkafka's consumers ask without creating, unless told otherwise.
        assert first_error(creating, "looked-at") == unknown
        assert first_error(creating, "no/name") == confluent_kafka.KafkaError.TOPIC_EXCEPTION


def first_error(broker: Broker, topic: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address(broker), "group.id": "g"})
    error = consumer.list_topics(topic, 30).topics[topic].error
    consumer.close()
    return 0 if error is None else int(error.code())


def test_kafka_python_produces_with_each_acks(broker: Broker, kafka_python: ExitStack) -> None:
    create(broker, "acks")
    for number, acks in enumerate((0, 1, "all")):
        producer = kafka.KafkaProducer(
            bootstrap_servers=address(broker), acks=acks, enable_idempotence=acks == "all"
        )
        kafka_python.enter_context(closing(producer))
        sent = producer.send("acks", b"%d" % number, headers=[("h", b"x")], timestamp_ms=77)
        told = sent.get(30).offset
        # With acks=0 the client makes an offset up, and nobody says when the record is there.
        assert told == number or acks == 0
        consumed(broker, "acks", number + 1)
    assert [each.value() for each in consumed(broker, "acks", 3)] == [b"0", b"1", b"2"]


def test_what_was_sent_with_acks_0_is_written_though_the_client_has_left(broker: Broker) -> None:
    create(broker, "left")
    with socket.create_connection((broker.host, broker.port)) as connection:
        for number in range(5):
            batch = encode_batch([Record(0, number, None, b"%d" % number)])
            connection.sendall(produce_frame("left", 0, batch, acks=0))
    found = consumed(broker, "left", 5)
    assert [message.value() for message in found] == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_compresses(broker: Broker, codec: str) -> None:
    create(broker, codec)
    messages = [{"value": b"again and again" * 10, "key": b"%d" % n} for n in range(100)]
    told = produced(broker, codec, messages, **{"compression.type": codec, "linger.ms": 50})
    assert told == [(0, number) for number in range(100)]
    found = consumed(broker, codec, 100)
    assert [each.key() for each in found] == [b"%d" % n for n in range(100)]
    assert {each.value() for each in found} == {b"again and again" * 10}


def test_aiokafka_produces_while_it_waits_for_what_it_produces(broker: Broker) -> None:
    create(broker, "echo")

    async def echo() -> list[tuple[int, bytes]]:
        consumer = aiokafka.AIOKafkaConsumer(
            "echo", bootstrap_servers=address(broker), auto_offset_reset="earliest"
        )
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=address(broker), enable_idempotence=True
        )
        await asyncio.gather(consumer.start(), producer.start())
        found = []
        try:
            for number in range(5):
                await producer.send_and_wait("echo", b"%d" % number)
                record = await asyncio.wait_for(consumer.getone(), 30)
                found.append((record.offset, record.value))
        finally:
            await asyncio.gather(consumer.stop(), producer.stop())
        return found

    assert asyncio.run(echo()) == [(number, b"%d" % number) for number in range(5)]


def test_a_topic_without_a_table_takes_no_records(broker: Broker, root: str) -> None:
    create_topic(root, "name-alone", 2)
    told = produced(broker, "name-alone", [{"value": b"x", "partition": 1}])
    assert told == [confluent_kafka.KafkaError.POLICY_VIOLATION]


def test_what_cannot_be_taken_is_refused_as_by_kafka(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": address(broker)})
    create(broker, "small", max_message_bytes="500")
    settings = {"message.timeout.ms": 20_000}
    told = produced(broker, "small", [{"value": b"x" * 600}], **settings)
    assert told == [confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE]
    far = [{"value": b"x", "timestamp": 2**45}]
    told = produced(broker, "small", far, **settings)
    assert told == [confluent_kafka.KafkaError.INVALID_TIMESTAMP]
    named = admin.create_topics([NewTopic("odd", num_partitions=1, config={"cleanup.policy": "x"})])
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        named["odd"].result(30)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.INVALID_CONFIG


def test_transactions_are_refused_at_once(broker: Broker) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address(broker), "transactional.id": "t"}
    )
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.init_transactions(30)
    code = refused.value.args[0].code()
    assert code == confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_the_time_of_a_record_may_be_that_of_its_append(broker: Broker) -> None:
    create(broker, "appended", message_timestamp_type="LogAppendTime")
    before = clock_ms()
    for value in (b"a", b"b"):
        produced(broker, "appended", [{"value": value, "timestamp": 5}])
    kinds, times = zip(*(each.timestamp() for each in consumed(broker, "appended", 2)), strict=True)
    assert set(kinds) == {confluent_kafka.TIMESTAMP_LOG_APPEND_TIME}
    assert before <= times[0] < times[1] <= clock_ms()


# --- gateways that die, and several of them -------------------------------------------------------


def test_a_batch_whose_acknowledgement_was_lost_is_written_once(
    empty_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway dies between the commit and its acknowledgement; another one takes its place."""
    root = str(tmp_path / "root")
    shutil.copytree(empty_root, root)
    create_log_topic(root, "once", 1)
    append = LogAppender.append
    killed: list[int] = []

    def dies(self: LogAppender, *args: Any) -> Any:
        outcomes = append(self, *args)
        if not killed:
            killed.append(len(outcomes))
            raise OSError("killed after the commit")
        return outcomes

    monkeypatch.setattr(LogAppender, "append", dies)
    with gateway(root) as broker:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": address(broker), "enable.idempotence": True, "linger.ms": 20}
        )
        told: list[Any] = []
        for number in range(10):
            producer.produce(
                "once", b"%d" % number, on_delivery=lambda e, m: told.append((e, m.offset()))
            )
        wait_until("an append", lambda: killed, meanwhile=lambda: producer.poll(0.01))
    with gateway(root, broker.port):
        assert producer.flush(30) == 0
    assert told == [(None, number) for number in range(10)]
    assert killed
    topics = TableTopics(root)
    topics.poll()
    assert topics.log_end("once", 0) == 10


def test_who_finds_no_room_behind_what_waits_is_disconnected_and_sends_again(
    empty_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "root")
    shutil.copytree(empty_root, root)
    create_log_topic(root, "hangs", 1)
    append, begun, goes_on = LogAppender.append, threading.Event(), threading.Event()

    def hangs(self: LogAppender, *args: Any) -> Any:
        begun.set()
        assert goes_on.wait(30)
        return append(self, *args)

    monkeypatch.setattr(LogAppender, "append", hangs)
    settings = GatewaySettings(queued_max_request_bytes=1)
    with gateway(root, settings=settings) as broker:
        address = broker.host, broker.port
        with socket.create_connection(address, 30) as first:
            first.sendall(produce_frame("hangs", 0, one(b"waits")))
            assert begun.wait(30)
            with socket.create_connection(address, 30) as second:
                # The second one must not be written before the first one of its connection.
                frames = [produce_frame("hangs", 0, one(b"%d" % n)) for n in (1, 2)]
                second.sendall(b"".join(frames))
                assert second.recv(1) == b""
            goes_on.set()
            assert produce_answer(first)[1].base_offset == 0
        with socket.create_connection(address, 30) as again:
            assert [produce(again, "hangs", 0, one(b"%d" % n)).base_offset for n in (1, 2)] == [
                1,
                2,
            ]


def test_two_gateways_append_to_one_topic(empty_root: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    shutil.copytree(empty_root, root)
    create_log_topic(root, "shared", 2)
    count = 50
    with gateway(root) as first, gateway(root) as second:
        # Clients find the leader of a partition by Metadata. Here both gateways are given both.
        with ThreadPoolExecutor(2) as threads:
            told = list(threads.map(lambda each: appended(each, count), (first, second)))
        found = consumed(second, "shared", 2 * count)
    assert len({*told[0], *told[1]}) == 2 * count
    assert {(each.partition(), each.offset()) for each in found} == {*told[0], *told[1]}
    for partition in (0, 1):
        offsets = [each.offset() for each in found if each.partition() == partition]
        assert offsets == list(range(count))


def appended(broker: Broker, count: int) -> set[tuple[int, int]]:
    """Where one gateway put so many records, each in a request of its own."""
    found: set[tuple[int, int]] = set()
    with socket.create_connection((broker.host, broker.port)) as connection:
        for number in range(count):
            partition = number % 2
            batch = encode_batch([Record(0, number, None, b"%d of %d" % (number, broker.port))])
            answer = produce(connection, "shared", partition, batch)
            assert answer.error_code == 0
            found.add((partition, answer.base_offset))
    return found


def produce_frame(
    topic: str, partition: int, batch: bytes, acks: int = -1, number: int = 1
) -> bytes:
    """Produce of one partition, as a client sends it that asks whichever gateway it likes."""
    asked = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            asked(
                name=topic,
                partition_data=[asked.PartitionProduceData(index=partition, records=batch)],
            )
        ],
    )
    body = struct.pack(">hhih", 0, 8, number, -1) + request.encode(version=8)
    return struct.pack(">i", len(body)) + body


def produce(connection: socket.socket, topic: str, partition: int, batch: bytes) -> Any:
    """Produce, and return what became of it."""
    connection.sendall(produce_frame(topic, partition, batch))
    return produce_answer(connection)[1]


def produce_answer(connection: socket.socket) -> tuple[int, Any]:
    """The number of the request that is answered next, and what became of its partition."""
    (size,) = struct.unpack(">i", received(connection, 4))
    answer = received(connection, size)
    (found,) = ProduceResponse.decode(answer[4:], version=8).responses[0].partition_responses
    return struct.unpack_from(">i", answer)[0], found


def received(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        assert more
        found += more
    return found


def test_a_gateway_that_has_not_heard_that_a_topic_was_made_anew_refuses(
    empty_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records would be acknowledged and in the table of the topic that was deleted."""
    root = str(tmp_path / "root")
    shutil.copytree(empty_root, root)
    create_log_topic(root, "anew", 1)
    told = []
    with gateway(root) as broker, socket.create_connection((broker.host, broker.port)) as client:
        told.append(produce(client, "anew", 0, one(b"old")))
        with monkeypatch.context() as deaf:
            deaf.setattr(Definitions, "poll", lambda _: False)
            delete_topic(root, "anew")
            create_log_topic(root, "anew", 1)
            told.append(produce(client, "anew", 0, one(b"lost")))

        def taken() -> bool:
            told.append(produce(client, "anew", 0, one(b"new")))
            return bool(told[-1].error_code == 0)

        wait_until("the new topic", taken)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for each in told[:2]] == [0, unknown]
    assert {each.error_code for each in told[2:-1]} <= {unknown}
    assert told[-1].base_offset == 0


def test_producer_ids_are_given_once(empty_root: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    shutil.copytree(empty_root, root)
    first, second = ProducerIdManager(root), ProducerIdManager(root)
    given = [each.next_id() for _ in range(1_001) for each in (first, second)]
    given.append(ProducerIdManager(root).next_id())
    assert len(set(given)) == 2_003


def test_gateways_that_were_deleted_give_no_producer_id_again(tmp_path: Path) -> None:
    """A new producer's first batch would be one that a topic has, and not be written."""
    root = str(tmp_path / "root")
    given = {ProducerIdManager(root).next_id() for _ in range(2)}
    shutil.rmtree(table_uri(root, GATEWAYS))
    assert given.isdisjoint(ProducerIdManager(root).next_id() for _ in range(2))


def test_an_older_copy_of_gateways_gives_no_producer_id_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000
    monkeypatch.setattr(producer_state, "clock_ms", lambda: now)
    root = str(tmp_path / "root")
    table, copy = table_uri(root, GATEWAYS), tmp_path / "copy"
    given = {ProducerIdManager(root).next_id()}
    shutil.copytree(table, copy)
    given |= {ProducerIdManager(root).next_id() for _ in range(2)}
    assert len(given) == 3
    shutil.rmtree(table)
    copy.rename(table)
    now = 2_000
    assert ProducerIdManager(root).next_id() not in given


def test_of_two_that_take_a_block_at_once_one_takes_the_next(
    empty_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both ask for the block of this time.
    monkeypatch.setattr(producer_state, "clock_ms", lambda: 1_000)
    root = str(tmp_path / "root")
    shutil.copytree(empty_root, root)
    first, second = ProducerIdManager(root), ProducerIdManager(root)
    append = Appender.append
    others: list[int] = []

    def later(appender: Appender, *words: Any) -> bool:
        monkeypatch.setattr(Appender, "append", append)
        others.append(second.next_id())
        return append(appender, *words)

    monkeypatch.setattr(Appender, "append", later)
    assert first.next_id() not in others


def test_no_producer_id_is_given_of_a_block_that_may_be_another_s(
    empty_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append whose outcome is unknown may have stood behind another gateway's."""
    root = str(tmp_path / "root")
    shutil.copytree(empty_root, root)
    # The two gateways ask for the block after the first one.
    monkeypatch.setattr(producer_state, "clock_ms", lambda: 1_000)
    ProducerIdManager(root).next_id()
    first, second = ProducerIdManager(root), ProducerIdManager(root)
    append = Appender.append

    def lost(appender: Appender, *words: Any) -> bool:
        monkeypatch.setattr(Appender, "append", append)
        others.append(second.next_id())
        raise CommitStateUnknown("the answer was lost")

    others: list[int] = []
    monkeypatch.setattr(Appender, "append", lost)
    given = {first.next_id() for _ in range(1_000)}
    assert given.isdisjoint(others + [second.next_id() for _ in range(999)])


def one(value: bytes) -> bytes:
    return encode_batch([Record(0, clock_ms(), None, value)])


def versions(root: str, topic: str) -> int:
    """How many commits a topic's own table has."""
    return DeltaTable(definition_of(root, topic).table).version()


def test_others_are_answered_while_a_fetch_is_at_work(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step of an answer is held: to write it."""
    create(broker, "held", 1)
    at_work, may_end = threading.Event(), threading.Event()
    body = fetch._body

    def held(*args: Any) -> bytes:
        at_work.set()
        may_end.wait(30)
        return body(*args)

    asked = FetchRequest.FetchTopic
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1_000,
        topics=[
            asked(
                topic="held",
                partitions=[
                    asked.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
                ],
            )
        ],
    )
    with connected(broker) as fetching, connected(broker) as other:
        produce(other.socket, "held", 0, one(b"a record"))
        monkeypatch.setattr(fetch, "_body", held)
        try:
            fetching.send(request, 4)
            assert at_work.wait(30)
            assert other.ask(heartbeat(), HeartbeatResponse, 4).error_code
        finally:
            may_end.set()
        (found,) = fetching.receive(FetchResponse, 4)[1].responses[0].partitions
        assert found.error_code == 0


def test_what_a_client_sends_for_six_partitions_is_one_commit(broker: Broker, root: str) -> None:
    """librdkafka sends a request for each partition, and waits for none of their answers."""
    create(broker, "six", 6)
    with socket.create_connection((broker.host, broker.port), 30) as connection:
        produce(connection, "six", 0, one(b"the first"))
        before = versions(root, "six")
        frames = [produce_frame("six", n, one(b"%d" % n), number=n) for n in range(6)]
        # What comes after them is answered after them.
        frames.append(struct.pack(">ihhih", 10, 18, 0, 6, -1))
        connection.sendall(b"".join(frames))
        told = [produce_answer(connection) for _ in range(6)]
        assert [(number, each.index, each.base_offset) for number, each in told] == [
            (n, n, 1 if n == 0 else 0) for n in range(6)
        ]
        (size,) = struct.unpack(">i", received(connection, 4))
        assert struct.unpack_from(">i", received(connection, size)) == (6,)
        assert versions(root, "six") == before + 1


def test_requests_for_one_partition_keep_their_order(broker: Broker) -> None:
    """Though each waits for its records otherwise: acks=all has a time limit, acks=1 none."""
    create(broker, "in-order", 1)
    with socket.create_connection((broker.host, broker.port), 30) as connection:
        frames = [
            produce_frame("in-order", 0, one(b"%d" % n), acks=(-1, 1)[n % 2], number=n)
            for n in range(40)
        ]
        connection.sendall(b"".join(frames))
        told = [produce_answer(connection) for _ in range(40)]
    assert [(number, each.base_offset) for number, each in told] == [(n, n) for n in range(40)]
    assert [each.value() for each in consumed(broker, "in-order", 40)] == [
        b"%d" % n for n in range(40)
    ]


@pytest.mark.full
@pytest.mark.parametrize(
    ("count", "kills"), [(9_000, 3), pytest.param(30_000, 10, marks=pytest.mark.long)]
)
def test_a_gateway_that_is_killed_again_and_again_writes_each_record_once(
    empty_root: Path, tmp_path: Path, count: int, kills: int
) -> None:
    root = str(tmp_path / "root")
    shutil.copytree(empty_root, root)
    create_log_topic(root, "killed", 3)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        sys.executable,
        "-m",
        "group_coordinator",
        "gateway",
        "--root",
        root,
        "--listen",
        listen,
    ]
    told: list[Any] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": listen, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
    )
    process = subprocess.Popen(command)
    chance = random.Random(5)
    try:
        for number in range(count):
            producer.produce(
                "killed",
                b"%d" % number,
                partition=number % 3,
                on_delivery=lambda error, _: told.append(error),
            )
            if number % (count // kills) == count // kills - 1:
                producer.poll(chance.uniform(0.2, 1))
                process.kill()
                process.wait()
                process = subprocess.Popen(command)
            elif number % 10 == 0:
                producer.poll(0.001)
        assert producer.flush(120) == 0
    finally:
        process.kill()
        process.wait()
    assert told == [None] * count
    topics = TableTopics(root)
    topics.catch_up()
    for partition in range(3):
        records: list[Record] = []
        while len(records) < topics.log_end("killed", partition):
            records += topics.read("killed", partition, len(records), 1 << 20, 10_000)
        assert [record.offset for record in records] == list(range(len(records)))
        assert [int(record.value or b"") for record in records] == list(range(partition, count, 3))
