"""A Delta table is a topic that unmodified clients consume, while it grows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec
from deltalake import DeltaTable, write_deltalake
from kafka import KafkaConsumer, TopicPartition

from group_coordinator.pipeline.gateway.brokers import Broker
from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from group_coordinator.pipeline.topics import create_table_topic
from group_coordinator.schemas.tables import TOPICS
from tests.pipeline.gateway.running import coordinator, gateway
from tests.waiting import wait_until

ROWS = 3_000


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {"id": pa.array(numbers, pa.int64()), "name": [f"customer-{n % 50}" for n in numbers]}
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("tables") / "orders")
    write_deltalake(uri, rows(0, ROWS))
    return uri


@pytest.fixture(scope="module")
def root_of(empty_root: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("gateway"))
    shutil.copytree(empty_root, root, dirs_exist_ok=True)
    return root


@pytest.fixture(scope="module")
def broker(root_of: str, table: str) -> Iterator[Broker]:
    root = root_of
    create_table_topic(root, "orders", 3, table, key="name")
    with coordinator(root), gateway(root) as running:
        yield running


@pytest.mark.slow
def test_librdkafka_reads_every_row_once(broker: Broker) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": f"{broker.host}:{broker.port}",
            "group.id": "rd",
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    consumer.subscribe(["orders"])
    found: list[Any] = []
    while len(found) < ROWS:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        found.append(message)
    consumer.close()
    values = [json.loads(each.value()) for each in found]
    assert sorted(each["id"] for each in values) == list(range(ROWS))
    assert all(each.key().decode() == v["name"] for each, v in zip(found, values, strict=True))
    of_key = {(each.key(), each.partition()) for each in found}
    assert len(of_key) == 50
    for partition in range(3):
        offsets = [each.offset() for each in found if each.partition() == partition]
        assert offsets == list(range(len(offsets)))


def test_kafka_python_follows_a_table_that_grows(
    broker: Broker, root_of: str, tmp_path: Path, kafka_python: ExitStack
) -> None:
    table = str(tmp_path / "growing")
    write_deltalake(table, rows(0, 100))
    create_table_topic(root_of, "growing", 3, table, key="name")
    until_there(admin_of(broker), "growing")
    consumer = KafkaConsumer(
        bootstrap_servers=f"{broker.host}:{broker.port}", auto_offset_reset="latest"
    )
    kafka_python.enter_context(closing(consumer))
    partitions = [TopicPartition("growing", number) for number in range(3)]
    consumer.assign(partitions)
    before = consumer.end_offsets(partitions)
    assert sum(before.values()) == 100
    for partition in partitions:
        consumer.seek(partition, before[partition])
    write_deltalake(table, rows(100, 10), mode="append")
    found: list[int] = []

    def poll() -> None:
        for records in consumer.poll(timeout_ms=1_000).values():
            found.extend(json.loads(record.value)["id"] for record in records)

    wait_until(lambda: f"ten rows, but {found}", lambda: len(found) >= 10, meanwhile=poll)
    assert sorted(found) == list(range(100, 110))


def test_producers_are_told_that_records_are_rows(broker: Broker) -> None:
    found: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    producer.produce("orders", b"x", on_delivery=lambda error, _: found.append(error))
    producer.flush(20)
    (error,) = found
    assert error.code() == confluent_kafka.KafkaError.POLICY_VIOLATION


def test_an_offset_is_found_by_its_time(broker: Broker, kafka_python: ExitStack) -> None:
    consumer = KafkaConsumer(bootstrap_servers=f"{broker.host}:{broker.port}")
    kafka_python.enter_context(closing(consumer))
    partition = TopicPartition("orders", 1)
    assert consumer.offsets_for_times({partition: 0})[partition].offset == 0
    assert consumer.offsets_for_times({partition: 2**45})[partition] is None
    assert consumer.beginning_offsets([partition]) == {partition: 0}


def test_the_offset_of_the_latest_timestamp_is_found(
    broker: Broker, root_of: str, tmp_path: Path
) -> None:
    table = str(tmp_path / "timed")
    for first in (0, 100):
        write_deltalake(table, rows(first, 100), mode="append")
    create_table_topic(root_of, "timed", 1, table, key="name")
    admin = admin_of(broker)
    until_there(admin, "timed")
    partition = confluent_kafka.TopicPartition("timed", 0)

    def found(spec: OffsetSpec) -> Any:
        return admin.list_offsets({partition: spec})[partition].result(30)

    latest = found(OffsetSpec.max_timestamp())
    # All rows of a commit have its time: the first of the last commit's is found.
    assert latest.timestamp == DeltaTable(table).history()[0]["timestamp"]
    assert latest.offset == found(OffsetSpec.for_timestamp(latest.timestamp)).offset == 100
    assert found(OffsetSpec.latest()).offset == 200


def test_a_topic_without_records_has_no_latest_timestamp(broker: Broker, root_of: str) -> None:
    create_topic(root_of, "empty", 1)
    admin = admin_of(broker)
    until_there(admin, "empty")
    partition = confluent_kafka.TopicPartition("empty", 0)
    found = admin.list_offsets({partition: OffsetSpec.max_timestamp()})[partition].result(30)
    assert (found.offset, found.timestamp) == (-1, -1)


def test_an_offset_that_is_not_there_is_out_of_range(broker: Broker) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": f"{broker.host}:{broker.port}",
            "group.id": "beyond",
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, 10_000_000)])
    message = consumer.poll(30)
    assert message is not None
    assert message.error().code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET
    consumer.close()


@pytest.mark.slow
def test_a_table_that_was_replaced_is_not_served_under_its_old_offsets(
    broker: Broker, root_of: str, tmp_path: Path
) -> None:
    uri = str(tmp_path / "replaced")
    write_deltalake(uri, rows(0, 5))
    create_table_topic(root_of, "replaced", 1, uri, key="name")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "replaced"}
    )

    def bounds() -> tuple[int, int] | None:
        """None while the gateway does not tell: librdkafka asks again for as long as it may."""
        try:
            return consumer.get_watermark_offsets(
                confluent_kafka.TopicPartition("replaced", 0), timeout=2
            )
        except confluent_kafka.KafkaException:
            return None

    try:
        wait_until("its five rows are served", lambda: bounds() == (0, 5))
        shutil.rmtree(uri)
        write_deltalake(uri, rows(100, 50))
        while (found := bounds()) is not None:
            assert found == (0, 5)
    finally:
        consumer.close()


@pytest.mark.slow
def test_a_producer_goes_on_when_the_catalogue_of_topics_is_made_anew(root: str) -> None:
    """Meanwhile each error is one that a producer retries."""
    failed: list[str] = []

    def on_delivery(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is not None:
            failed.append(error.str())

    with coordinator(root), gateway(root) as broker:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": f"{broker.host}:{broker.port}",
                "linger.ms": 0,
                "topic.metadata.refresh.interval.ms": 500,
                "message.timeout.ms": 60_000,
            }
        )

        def produced(number: int) -> int:
            producer.produce("clicks", str(number), on_delivery=on_delivery)
            return producer.flush(60)

        admin = admin_of(broker)

        def create_clicks() -> None:
            (created,) = admin.create_topics([NewTopic("clicks", 1)]).values()
            created.result(20)

        create_clicks()
        assert produced(0) == 0
        shutil.rmtree(Path(root, "topics"))
        assert produced(1) == 0, "without the catalogue its last state holds"
        ensure_table(root, TOPICS)
        create_topic(root, "others", 1)
        until_there(admin, "others")
        assert "clicks" not in admin.list_topics(timeout=20).topics
        producer.produce("clicks", "2", on_delivery=on_delivery)
        create_clicks()
        assert producer.flush(60) == 0
    assert failed == []


@pytest.mark.parametrize(
    ("timestamp", "kind", "is_default"),
    [(None, "LogAppendTime", False), ("at", "CreateTime", True)],
)
def test_what_kafka_presumes_is_a_default(
    broker: Broker,
    root_of: str,
    tmp_path: Path,
    timestamp: str | None,
    kind: str,
    is_default: bool,
) -> None:
    """kafka-topics.sh lists what is no default as a topic's configs."""
    name = f"of-{kind}"
    uri = str(tmp_path / name)
    write_deltalake(uri, pa.table({"partition": [0], "at": [1]}))
    create_table_topic(root_of, name, 1, uri, partition="partition", timestamp=timestamp)
    admin = admin_of(broker)
    until_there(admin, name)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    (described,) = admin.describe_configs([resource]).values()
    found = described.result(20)["message.timestamp.type"]
    assert (found.value, found.is_default) == (kind, is_default)


def admin_of(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": f"{broker.host}:{broker.port}"})


def until_there(admin: AdminClient, topic: str) -> None:
    """Wait until the gateway shows a topic."""
    wait_until(f"{topic} is shown", lambda: topic in admin.list_topics(timeout=20).topics)
