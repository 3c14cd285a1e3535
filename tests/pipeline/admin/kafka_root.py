"""A root with the topics of the recorded broker: see `tests/pipeline/gateway/kafka_tools`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from group_coordinator.pipeline.topics import TableTopics, create_table_topic
from group_coordinator.schemas.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    RequestEvent,
)
from tests.pipeline.asking import ask
from tests.roots import make_tables

FIRST_MS = 1_700_000_000_000
_SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("p", pa.int32()), ("v", pa.string())])


def make_root(folder: Path) -> str:
    """Topics `orders` with 10, 5 and 0 records, `returns` with 3, a second apart."""
    root = str(folder / "root")
    make_tables(root)
    for name, counts in (("orders", (10, 5, 0)), ("returns", (3,))):
        rows = [
            {"at": _moment(number), "p": partition, "v": f"{number}"}
            for partition, count in enumerate(counts)
            for number in range(count)
        ]
        table = str(folder / name)
        write_deltalake(table, pa.Table.from_pylist(rows, schema=_SCHEMA))
        create_table_topic(root, name, len(counts), table, partition="p", timestamp="at")
    topics = TableTopics(root)
    topics.catch_up()
    return root


def commit(root: str, group_id: str, topic: str, *offsets: int) -> None:
    """Commit offsets of partitions 0, 1, ... as a consumer without a group would."""
    partitions = tuple(OffsetCommitPartition(i, offset) for i, offset in enumerate(offsets))
    body = OffsetCommitRequest(topics=(OffsetCommitTopic(topic, partitions),))
    request_id = f"commit-{group_id}-{topic}-{offsets}"
    answer = ask(root, RequestEvent(request_id, group_id, "offset_commit", offset_commit=body))
    assert answer.error == "NONE"


def _moment(second: int) -> datetime:
    return datetime.fromtimestamp(FIRST_MS / 1000 + second, UTC)
