"""A root with many groups, written at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
from deltalake import write_deltalake

from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    TopicPartition,
    encode_assignment,
)
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.tables.store import ensure_tables, table_uri
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    OFFSET_COMMIT,
    CoordinatorRecord,
    GroupEvent,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from group_coordinator.schemas.tables import GROUP_EVENTS, OFFSETS_TOPIC, to_arrow, to_events

AT_ONCE = 10_000
STEPS = ("PreparingRebalance", "CompletingRebalance", "Stable")


def write_groups(root: str, groups: int, partitions: int) -> None:
    """Write groups g-000000 and so on, each Stable with two members and its committed offsets."""
    ensure_tables(root)
    numbers = iter(range(groups))
    while chunk := list(islice(numbers, AT_ONCE)):
        records = [record for number in chunk for record in _records(number, partitions)]
        segment = {"segment": pa.array([0] * len(records), pa.int64())}
        rows = to_arrow(OFFSETS_TOPIC, records, segment)
        write_deltalake(table_uri(root, OFFSETS_TOPIC), rows, mode="append")
        events = [event for number in chunk for event in _events(number)]
        write_deltalake(table_uri(root, GROUP_EVENTS), to_events(events), mode="append")


def _records(number: int, partitions: int) -> Iterator[CoordinatorRecord]:
    group, topic, at = f"g-{number:06}", f"topic-{number % 50}", clock_ms() - 60_000
    log_offset = number * (partitions + 1)
    members = tuple(
        MemberMetadata(
            f"{group}-{place}",
            None,
            f"client-{place}",
            "/10.0.0.1",
            60_000,
            10_000,
            b"",
            encode_assignment(
                Assignment(
                    tuple(TopicPartition(topic, each) for each in range(place, partitions, 2))
                )
            ),
        )
        for place in range(2)
    )
    value = GroupMetadataValue("consumer", 1, "range", members[0].member_id, at, members)
    shard = number % 50
    yield CoordinatorRecord(shard, GROUP_METADATA, group, at, log_offset, group_metadata=value)
    for each in range(partitions):
        yield CoordinatorRecord(
            shard,
            OFFSET_COMMIT,
            group,
            at,
            log_offset + each + 1,
            topic,
            each,
            OffsetCommitValue(number + each, -1, "", at),
        )


def _events(number: int) -> Iterator[GroupEvent]:
    at = clock_ms() - 60_000
    before = "Empty"
    for place, state in enumerate(STEPS):
        yield GroupEvent(at + place, f"g-{number:06}", "transition", before, state, 1)
        before = state
