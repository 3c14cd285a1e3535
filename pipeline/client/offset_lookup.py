"""Offset lookups for consumers: log start, log end, and by time. Source: Kafka's ListOffsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from group_coordinator.coordinator.consumer.protocol import TopicPartition
    from group_coordinator.pipeline.topics import TableTopics


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
