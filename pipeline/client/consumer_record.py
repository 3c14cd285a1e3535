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
    LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def consumer_records(partition: TopicPartition, records: list[Record]) -> list[ConsumerRecord]:
    """Convert the records of a partition."""
    topic, number = partition
    return [
        ConsumerRecord(
            topic,
            number,
            record.offset,
            record.timestamp_ms,
            record.timestamp_type,
            record.key,
            record.value,
            record.headers,
        )
        for record in records
    ]


class OffsetAndTimestamp(Struct, frozen=True):
    """A record's offset and timestamp (ms)."""

    offset: int
    timestamp: int


def log_bounds(logs: TableTopics, partition: TopicPartition) -> tuple[int, int]:
    """Return a partition's log start and log end; 0 and 0 for a topic without a table.

    Raises UnknownTopicOrPartition and TableReplaced.
    """
    if _has_no_records(logs, partition):
        return 0, 0
    return logs.log_start(*partition), logs.log_end(*partition)


def offset_for_time(
    logs: TableTopics, partition: TopicPartition, time_ms: int
) -> OffsetAndTimestamp | None:
    """Return the first record at or after a time (ms); None if there is none.

    Raises the errors of `log_bounds`.
    """
    if _has_no_records(logs, partition):
        return None
    offset_and_time = logs.offset_for_time(*partition, time_ms)
    return None if offset_and_time is None else OffsetAndTimestamp(*offset_and_time)


def _has_no_records(logs: TableTopics, partition: TopicPartition) -> bool:
    count = logs.catalogue().get(partition.topic, 0)
    return partition.topic not in logs.topics() and 0 <= partition.partition < count
