"""Topics that have tables of their own, as the tests write and read them."""

from __future__ import annotations

from typing import Any

from group_coordinator.pipeline.topics import (
    Appended,
    LogAppender,
    NewBatch,
    Outcome,
    TableTopics,
    create_log_topic,
)
from group_coordinator.schemas.rows import TopicTable
from tests.pipeline.topics.tables import definition_of


def make(root: str, partitions: int = 3, **config: str) -> TopicTable:
    """A topic, `t`; configs with underscores for points."""
    named = {name.replace("_", "."): value for name, value in config.items()}
    create_log_topic(root, "t", partitions, named)
    return definition_of(root)


def appender(topic: TopicTable) -> LogAppender:
    return LogAppender(topic, is_append_time=False)


def batch(partition: int, *values: str, at: int = 1_000, **fields: Any) -> NewBatch:
    """A batch of these values; each has itself as its key."""
    texts = [value.encode() for value in values]
    times = [at + place for place in range(len(texts))]
    return NewBatch(partition, list(texts), list(texts), times, **fields)


def of_producer(sequence: int, *values: str, epoch: int = 0, partition: int = 0) -> NewBatch:
    """A batch of the idempotent producer 7."""
    return batch(partition, *values, producer_id=7, producer_epoch=epoch, first_sequence=sequence)


def offsets(outcomes: list[Outcome]) -> list[int | str]:
    """The base offset of each batch, or the name of what was wrong with it."""
    return [
        each.base_offset if isinstance(each, Appended) else type(each).__name__ for each in outcomes
    ]


def values(topics: TableTopics, partition: int = 0) -> list[tuple[int, str]]:
    """The offset and the value of each record of a partition, read as a consumer does."""
    found: list[tuple[int, str]] = []
    at = topics.log_start("t", partition)
    while at < topics.log_end("t", partition):
        some = topics.read("t", partition, at, 50, 7)
        assert some
        assert all(record.value is not None for record in some)
        found += [(record.offset, (record.value or b"").decode()) for record in some]
        at = some[-1].offset + 1
    return found
