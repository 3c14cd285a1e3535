"""kafka-python, unmodified, is a member of a group through the gateway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata

from pipeline.gateway.brokers import Broker
from pipeline.tables.topics import create_topic
from tests.pipeline.gateway.running import gateway
from tests.pipeline.small import SmallCoordinator

BROKER = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1_000}


@pytest.fixture
def broker(root: str) -> Iterator[Broker]:
    create_topic(root, "orders", 4)
    coordinator = SmallCoordinator(root, BROKER)
    try:
        with gateway(root) as running:
            yield running
    finally:
        coordinator.stop()


def test_a_consumer_joins_commits_and_fetches_its_offsets(broker: Broker) -> None:
    where = f"{broker.host}:{broker.port}"
    consumer = KafkaConsumer(
        bootstrap_servers=where, group_id="g", enable_auto_commit=False, client_id="c"
    )
    partitions = [TopicPartition("orders", number) for number in range(4)]
    consumer.assign(partitions)
    consumer.commit({partitions[1]: OffsetAndMetadata(17, "so far", -1)})
    assert consumer.committed(partitions[1]) == 17
    assert consumer.committed(partitions[0]) is None
    consumer.close()
    admin = KafkaAdminClient(bootstrap_servers=where)
    print(admin.list_groups(), admin.describe_groups(["g"]))
    admin.close()


def test_two_consumers_share_the_partitions(broker: Broker) -> None:
    where = f"{broker.host}:{broker.port}"
    both = [
        KafkaConsumer("orders", bootstrap_servers=where, group_id="g", client_id=f"c{number}")
        for number in range(2)
    ]
    try:
        while not all(len(each.assignment()) == 2 for each in both):
            for each in both:
                each.poll(timeout_ms=100)
        assert set.union(*(each.assignment() for each in both)) == {
            TopicPartition("orders", number) for number in range(4)
        }
    finally:
        for each in both:
            each.close()
