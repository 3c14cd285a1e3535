"""Records and offsets that a consumer returns to its program.

Source: Kafka's ConsumerRecord; ListOffsets for the log start, the log end and offsets by time.
"""

from __future__ import annotations

from msgspec import Struct

from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.pipeline.topics import Record, TableTopics


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


class OffsetAndTimestamp(Struct, frozen=True):
    """A record's offset and timestamp (ms)."""

    offset: int
    timestamp: int


def bounds_of(logs: TableTopics, one: TopicPartition) -> tuple[int, int]:
    """Return a partition's log start and log end.

    Both are 0 for a topic that is in the catalogue but has no table. Raises UnknownTopicOrPartition
    and TableReplaced.
    """
    if _has_no_records(logs, one):
        return 0, 0
    return logs.log_start(*one), logs.log_end(*one)


def at_time(logs: TableTopics, one: TopicPartition, time_ms: int) -> OffsetAndTimestamp | None:
    """Return the first record at or after a time (ms); None if there is none.

    Raises as `bounds_of` does.
    """
    if _has_no_records(logs, one):
        return None
    found = logs.offset_for_time(*one, time_ms)
    return None if found is None else OffsetAndTimestamp(*found)


def _has_no_records(logs: TableTopics, one: TopicPartition) -> bool:
    count = logs.catalogue().get(one.topic, 0)
    return one.topic not in logs.topics() and 0 <= one.partition < count
