"""A consumer of librdkafka's."""

from __future__ import annotations

import confluent_kafka

from tests.pipeline.gateway.consumers.lines import HEARTBEAT_MS, SESSION_MS, arguments, write


def consume(address: str, strategy: str, instance: str | None) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
            "auto.commit.interval.ms": 200,
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            **({} if instance is None else {"group.instance.id": instance}),
        }
    )
    consumer.subscribe(["t"])
    while True:
        found = consumer.consume(500, 0.2)
        assert not [each.error() for each in found if each.error()]
        write((each.partition(), each.offset(), each.value()) for each in found)
        for each in found:
            # A partition that was revoked meanwhile has a new owner.
            try:
                consumer.store_offsets(each)
            except confluent_kafka.KafkaException:
                continue


if __name__ == "__main__":
    consume(*arguments())
