"""Records that `poll` returns. Source: Kafka's ConsumerRecord."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from group_coordinator.coordinator.consumer.protocol import TopicPartition
    from group_coordinator.pipeline.topics import Record


class ConsumerRecord(Struct, frozen=True, gc=False):
    """A record of a topic.

    `timestamp` is in ms since 1970-01-01 UTC. `timestamp_type` is Kafka's number: 0 CreateTime, 1
    LogAppendTime. The key and the value are bytes, None for null.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def consumer_records(one: TopicPartition, records: list[Record]) -> list[ConsumerRecord]:
    """Convert the records of a partition, adding their topic and partition."""
    topic, partition = one
    return [
        ConsumerRecord(
            topic,
            partition,
            each.offset,
            each.timestamp_ms,
            each.timestamp_type,
            each.key,
            each.value,
            each.headers,
        )
        for each in records
    ]
