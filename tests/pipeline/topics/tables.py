"""Tables that are topics, as the tests make and read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from group_coordinator.pipeline.topics import Record, TableTopics, create_table_topic
from group_coordinator.schemas.rows import TopicTable


def rows(ids: Iterable[int]) -> pa.Table:
    numbers = list(ids)
    return pa.table(
        {"id": [f"id-{n}" for n in numbers], "n": pa.array(numbers, pa.int64())},
    )


def append(uri: str, ids: Iterable[int] | pa.Table, **options: Any) -> None:
    write_deltalake(uri, ids if isinstance(ids, pa.Table) else rows(ids), mode="append", **options)


def opened(root: str, **options: Any) -> TableTopics:
    """The topics of a root, all that is new indexed."""
    return caught_up(TableTopics(root, **options))


def definition_of(root: str, topic: str = "t") -> TopicTable:
    """What a topic is made of."""
    found = opened(root).find(topic)
    assert found is not None
    _, definition = found
    assert definition is not None
    return definition


def caught_up(topics: TableTopics) -> TableTopics:
    topics.catch_up()
    return topics


def define(root: str, uri: str, partitions: int = 3, **columns: Any) -> None:
    create_table_topic(root, "t", partitions, uri, **(columns or {"key": "id"}))


def ends(topics: TableTopics) -> list[tuple[int, int]]:
    """The log start and the log end of each partition."""
    return [
        (topics.log_start("t", number), topics.log_end("t", number))
        for number in range(topics.topics()["t"])
    ]


def records(topics: TableTopics, partition: int, offset: int | None = None) -> list[Record]:
    """All records of a partition, read as a consumer does."""
    found: list[Record] = []
    at = topics.log_start("t", partition) if offset is None else offset
    while at < topics.log_end("t", partition):
        some = topics.read("t", partition, at, 200, 7)
        assert [record.offset for record in some] == list(range(at, at + len(some)))
        assert some
        found += some
        at += len(some)
    return found


def everything(topics: TableTopics) -> list[list[Record]]:
    """All records of each partition."""
    return [records(topics, number) for number in range(topics.topics()["t"])]
