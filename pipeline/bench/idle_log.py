"""An offsets topic of idle groups: each committed one offset, and its members left."""

from __future__ import annotations

import pyarrow as pa
from deltalake import write_deltalake

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    NO_LEADER_EPOCH,
    OFFSET_COMMIT,
    GroupMetadataValue,
    OffsetCommitValue,
    Record,
)
from group_coordinator.schemas.tables import OFFSETS_TOPIC, to_arrow


def write_idle_groups(root: str, groups: int, now: int) -> None:
    """Write two records for each of `groups` groups, which became Empty at `now`, ms."""
    if not groups:
        return
    partitions = GroupCoordinatorConfig().offsets_topic_num_partitions
    names = [f"idle-{number}" for number in range(groups)]
    records: list[Record] = []
    for name in names:
        place = partition_for(name, partitions)
        records.append(
            Record(
                partition=place,
                record_type=OFFSET_COMMIT,
                group_id=name,
                timestamp=now,
                log_offset=len(records),
                topic="t",
                topic_partition=0,
                offset_commit=OffsetCommitValue(1, NO_LEADER_EPOCH, "", now),
                reason="committed",
            )
        )
        records.append(
            Record(
                partition=place,
                record_type=GROUP_METADATA,
                group_id=name,
                timestamp=now,
                log_offset=len(records),
                group_metadata=GroupMetadataValue("consumer", 2, None, None, now, ()),
                reason="group emptied",
            )
        )
    segment = {"segment": pa.array([0] * len(records), pa.int64())}
    rows = to_arrow(OFFSETS_TOPIC, records, segment)
    write_deltalake(ensure_table(root, OFFSETS_TOPIC), rows, mode="append")
