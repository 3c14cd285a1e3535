"""Unmodified clients produce to topics of our own, and consume what was produced."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from pipeline.gateway.brokers import Broker
from pipeline.gateway.settings import GatewaySettings
from pipeline.topics import TableTopics
from tests.pipeline.gateway.running import coordinator, gateway


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


def test_librdkafka_produces_and_consumes(broker: Broker, root: str) -> None:
    admin = AdminClient({"bootstrap.servers": address(broker)})
    admin.create_topics([NewTopic("made", num_partitions=3)])["made"].result(30)
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
    topic = TableTopics(root)
    topic.poll()
    definition = topic.definition("made")
    assert definition is not None
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
