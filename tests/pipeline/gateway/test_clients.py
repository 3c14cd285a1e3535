"""Unmodified clients are members of groups through the gateway."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, closing
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import RebalanceInProgressError
from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.structs import OffsetAndMetadata

from group_coordinator.pipeline.gateway.brokers import Broker
from tests.pipeline.gateway.raw import connected
from tests.waiting import wait_until

ALL = {TopicPartition("orders", number) for number in range(4)}


def address(broker: Broker) -> str:
    return f"{broker.host}:{broker.port}"


@pytest.mark.slow
def test_two_of_kafka_python_share_the_partitions(broker: Broker, kafka_python: ExitStack) -> None:
    both = [
        kafka_python.enter_context(
            closing(
                KafkaConsumer(
                    "orders",
                    bootstrap_servers=address(broker),
                    group_id="kp",
                    client_id=name,
                    heartbeat_interval_ms=200,
                )
            )
        )
        for name in ("first", "second")
    ]

    # A poll that ends within its leader's join can lose that join: the member would be silent.
    def poll() -> None:
        for each in both:
            each.poll(timeout_ms=1_500)

    wait_until(
        "both own two",
        lambda: all(len(each.assignment()) == 2 for each in both),
        meanwhile=poll,
    )
    assert both[0].assignment() | both[1].assignment() == ALL
    first = both[0].assignment()
    offsets = dict.fromkeys(first, OffsetAndMetadata(17, "so far", -1))
    wait_until("a commit is taken", lambda: committed(both[0], offsets), meanwhile=poll)
    assert {both[1].committed(each) for each in first} == {17}
    assert both[1].end_offsets(ALL) == dict.fromkeys(ALL, 0)


def committed(consumer: KafkaConsumer, offsets: dict[TopicPartition, OffsetAndMetadata]) -> bool:
    """Whether the offsets were taken; not while one of the members joins again."""
    try:
        consumer.commit(offsets)
    except RebalanceInProgressError:
        return False
    return True


def test_kafka_python_administers_a_group(broker: Broker, kafka_python: ExitStack) -> None:
    consumer = KafkaConsumer(bootstrap_servers=address(broker), group_id="admin")
    kafka_python.enter_context(closing(consumer))
    consumer.assign(ALL)
    consumer.commit({each: OffsetAndMetadata(5, "", -1) for each in ALL})
    admin = KafkaAdminClient(bootstrap_servers=address(broker))
    kafka_python.enter_context(closing(admin))
    assert "admin" in {each["group_id"] for each in admin.list_groups()}
    assert admin.describe_groups(["admin"])["admin"]["group_state"] == "Empty"
    admin.delete_groups(["admin"])
    assert "admin" not in {each["group_id"] for each in admin.list_groups()}


def test_librdkafka_joins_commits_and_describes(broker: Broker) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address(broker), "group.id": "rd", "group.instance.id": "i"}
    )
    consumer.subscribe(["orders"])
    try:
        wait_until(
            "it owns all",
            lambda: len(consumer.assignment()) == 4,
            meanwhile=lambda: consumer.poll(0.1),
        )
        third = confluent_kafka.TopicPartition("orders", 3, 9)
        consumer.commit(offsets=[third], asynchronous=False)
        assert consumer.committed([third])[0].offset == 9
        assert consumer.get_watermark_offsets(third) == (0, 0)
        admin = AdminClient({"bootstrap.servers": address(broker)})
        described = admin.describe_consumer_groups(["rd"])["rd"].result()
        (member,) = described.members
        assert member.group_instance_id == "i"
        assert {each.partition for each in member.assignment.topic_partitions} == {0, 1, 2, 3}
    finally:
        consumer.close()


def test_librdkafka_with_the_next_group_protocol_is_refused_by_name(broker: Broker) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address(broker), "group.id": "next", "group.protocol": "consumer"}
    )
    consumer.subscribe(["orders"])
    found: list[Any] = []

    def poll() -> None:
        message = consumer.poll(0.1)
        if message is not None:
            found.append(message.error())

    try:
        wait_until("the error is reported", lambda: found, meanwhile=poll)
        assert found[0].code() == confluent_kafka.KafkaError._FATAL
        assert "ConsumerGroupHeartbeat fatal error: Broker: API version" in found[0].str()
    finally:
        consumer.close()


def test_aiokafka_joins_and_commits(broker: Broker) -> None:
    async def consume() -> tuple[Any, Any]:
        consumer = aiokafka.AIOKafkaConsumer(
            "orders", bootstrap_servers=address(broker), group_id="aio"
        )
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition("orders", 2)
            await consumer.commit({partition: 9})
            return consumer.assignment(), await consumer.committed(partition)
        finally:
            await consumer.stop()

    assigned, committed = asyncio.run(consume())
    assert {each.partition for each in assigned} == {0, 1, 2, 3}
    assert committed == 9


def test_an_unknown_topic_is_one_at_once(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": address(broker)})
    found = admin.list_topics("no-such-topic", timeout=20).topics["no-such-topic"]
    assert found.error.code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    with pytest.raises(confluent_kafka.KafkaException):
        confluent_kafka.Consumer(
            {"bootstrap.servers": address(broker), "group.id": "x"}
        ).get_watermark_offsets(confluent_kafka.TopicPartition("no-such-topic", 0), timeout=5)


def test_topics_are_created_grow_and_go(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": address(broker)})

    def code(futures: dict[str, Any]) -> int:
        (future,) = futures.values()
        try:
            future.result(30)
        except confluent_kafka.KafkaException as error:
            return int(error.args[0].code())
        return 0

    wanted = [NewTopic("made", num_partitions=2, replication_factor=1)]
    assert code(admin.create_topics(wanted, validate_only=True)) == 0
    assert "made" not in admin.list_topics(timeout=30).topics
    assert code(admin.create_topics(wanted)) == 0
    assert len(admin.list_topics(timeout=30).topics["made"].partitions) == 2
    assert code(admin.create_topics(wanted)) == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
    assert code(admin.create_partitions([NewPartitions("made", 5)])) == 0
    assert len(admin.list_topics(timeout=30).topics["made"].partitions) == 5
    fewer = admin.create_partitions([NewPartitions("made", 3)])
    assert code(fewer) == confluent_kafka.KafkaError.INVALID_PARTITIONS
    excessive = admin.create_partitions([NewPartitions("made", 10_001)])
    assert code(excessive) == confluent_kafka.KafkaError.POLICY_VIOLATION
    excessive = admin.create_topics([NewTopic("excessive", num_partitions=10_001)])
    assert code(excessive) == confluent_kafka.KafkaError.POLICY_VIOLATION
    assert code(admin.delete_topics(["made"])) == 0
    assert "made" not in admin.list_topics(timeout=30).topics
    assert code(admin.delete_topics(["made"])) == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    named = admin.create_topics([NewTopic("no/name", num_partitions=1)])
    assert code(named) == confluent_kafka.KafkaError.TOPIC_EXCEPTION


def test_what_cannot_be_done_is_said_in_kafka_s_words(broker: Broker) -> None:
    """And nothing is said of where the tables are, which is the server's affair."""
    admin = AdminClient({"bootstrap.servers": address(broker)})

    def said(futures: dict[str, Any]) -> str:
        (future,) = futures.values()
        error = future.exception(30).args[0]
        return str(error.str())

    again = said(admin.create_topics([NewTopic("orders", num_partitions=2)]))
    assert again == "Topic 'orders' already exists."
    unknown = "Broker: Unknown topic or partition"
    assert said(admin.create_partitions([NewPartitions("nothing", 5)])) == unknown
    assert said(admin.delete_topics(["nothing"])) == unknown


def test_the_cluster_is_described(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": address(broker)})
    found = admin.describe_cluster().result(30)
    assert [(each.id, each.host, each.port) for each in found.nodes] == [tuple(broker)]
    assert found.controller.id == broker.node_id


def test_configs_are_those_that_are_true_here(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": address(broker)})
    topic = NewTopic("configured", num_partitions=1, config={"retention.ms": "60000"})
    admin.create_topics([topic])["configured"].result(30)

    def described(kind: ConfigResource.Type, name: str) -> dict[str, Any]:
        (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
        return dict(future.result(30))

    found = described(ConfigResource.Type.TOPIC, "configured")
    assert found["retention.ms"].value == "60000"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["max.message.bytes"].value == "1048588"
    assert found["max.message.bytes"].is_default
    # Nobody can say this of a topic here.
    assert "min.insync.replicas" not in found
    own = described(ConfigResource.Type.BROKER, str(broker.node_id))
    assert own["advertised.listeners"].value == f"PLAINTEXT://{address(broker)}"
    assert own["socket.request.max.bytes"].value == "104857600"
    assert all(each.is_read_only for each in own.values())
    with pytest.raises(confluent_kafka.KafkaException, match="there is no topic"):
        described(ConfigResource.Type.TOPIC, "no-such-topic")


@pytest.mark.parametrize("version", range(1, 5))
def test_configs_are_described_in_each_version(broker: Broker, version: int) -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[
            resource(
                resource_type=4, resource_name=str(broker.node_id), configuration_keys=["node.id"]
            ),
            resource(resource_type=4, resource_name="77", configuration_keys=None),
            resource(resource_type=8, resource_name="1", configuration_keys=None),
        ],
        include_synonyms=True,
    )
    with connected(broker) as client:
        own, other, logger = client.ask(request, DescribeConfigsResponse, version).results
    (node_id,) = own.configs
    assert (node_id.name, node_id.value) == ("node.id", str(broker.node_id))
    assert [each.source for each in node_id.synonyms] == [node_id.config_source]
    assert (other.error_code, logger.error_code) == (42, 42)
