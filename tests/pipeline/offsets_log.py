"""An offsets topic on disk, written record by record, and read as by a coordinator."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from deltalake import DeltaTable

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.settings import UpkeepSettings
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    NO_LEADER_EPOCH,
    OFFSET_COMMIT,
    CoordinatorRecord,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from group_coordinator.schemas.tables import OFFSETS_HISTORY, OFFSETS_TOPIC, Table, to_arrow
from tests.roots import make_tables

SMALL_ENGINE = {"log_cleaner_memory": 64 << 20}


def upkeep(**settings: Any) -> UpkeepSettings:
    """Return settings of upkeep with a small engine, and the given ones."""
    return UpkeepSettings(**{**SMALL_ENGINE, **settings})


def commit(
    group: str, offset: int | None, at: int, where: tuple[str, int] = ("t", 0)
) -> CoordinatorRecord:
    """Return a committed offset; with `offset` None its tombstone."""
    value = None
    if offset is not None:
        value = OffsetCommitValue(offset, NO_LEADER_EPOCH, "", at)
    return CoordinatorRecord(
        _partition(group), OFFSET_COMMIT, group, at, None, *where, offset_commit=value
    )


def stored(group: str, generation: int | None, at: int) -> CoordinatorRecord:
    """Return a group's record; with `generation` None its tombstone."""
    value = None
    if generation is not None:
        member = MemberMetadata("m", None, "c", "/h", 1, 2, b"s", b"a")
        value = GroupMetadataValue("consumer", generation, "range", "m", at, (member,))
    return CoordinatorRecord(_partition(group), GROUP_METADATA, group, at, group_metadata=value)


def _partition(group: str) -> int:
    return len(group) % 3


class Log:
    """An offsets topic under a root. `records` has all appended records."""

    def __init__(self, root: str) -> None:
        self.root = root
        make_tables(root)
        self.uri = table_uri(root, OFFSETS_TOPIC)
        self.appender = Appender(self.uri)
        self.segment = 0
        self.records: list[CoordinatorRecord] = []

    def append(self, *records: CoordinatorRecord) -> None:
        """Append records to the active segment, in one commit."""
        placed = []
        for record in records:
            earlier = [*self.records, *placed]
            offset = sum(each.partition == record.partition for each in earlier)
            placed.append(msgspec.structs.replace(record, log_offset=offset))
        self.append_rows(placed)
        self.records += placed

    def append_rows(self, records: list[CoordinatorRecord]) -> None:
        """Append rows without a change."""
        segment = pa.array([self.segment] * len(records), pa.int64())
        self.appender.append(to_arrow(OFFSETS_TOPIC, records, {"segment": segment}))

    def roll(self) -> None:
        """Close the active segment."""
        self.segment += 1

    def read(self, table: Table = OFFSETS_TOPIC) -> list[CoordinatorRecord]:
        """Return the table's rows, in the order of the log."""
        return sorted(read_records(self.root, table), key=lambda r: (r.partition, r.log_offset))

    def segments(self) -> set[int]:
        """Return the segments that have files."""
        partitions = DeltaTable(self.uri).partitions()
        return {int(partition["segment"]) for partition in partitions}

    def superseded(self) -> list[CoordinatorRecord]:
        """Return the history's rows, in the order of the log."""
        return self.read(OFFSETS_HISTORY)


def read_records(root: str, table: Table) -> list[CoordinatorRecord]:
    """Return the rows of a table of records."""
    uri = table_uri(root, table)
    if not DeltaTable.is_deltatable(uri):
        return []
    rows = DeltaTable(uri).to_pyarrow_table()
    at = rows.schema.get_field_index("timestamp")
    millis = rows.column(at).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return msgspec.convert(
        rows.set_column(at, "timestamp", millis).to_pylist(), list[CoordinatorRecord]
    )
