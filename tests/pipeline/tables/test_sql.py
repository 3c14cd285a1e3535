"""The views of a root, over whatever groups have committed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pipeline.delta.open import open_appender
from pipeline.tables.sql import Catalog
from schemas.records import OFFSET_COMMIT, OffsetCommitValue, Record
from schemas.tables import OFFSETS_TOPIC, to_arrow


def commit(root: str, group_id: str, committed_at: int, expires_at: int = -1) -> None:
    value = OffsetCommitValue(7, -1, "", committed_at, expires_at)
    record = Record(
        0, OFFSET_COMMIT, group_id, 5, 0, topic="t", topic_partition=0, offset_commit=value
    )
    rows = to_arrow(OFFSETS_TOPIC, [record], {"segment": pa.array([0], pa.int64())})
    open_appender(f"{root}/offsets_topic").append(rows)


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), 253_402_300_800_000, -62_135_596_800_001])
def test_a_commit_at_a_time_without_a_date_hides_no_other_group(root: str, time: int) -> None:
    commit(root, "far", time, 2**63 - 1)
    commit(root, "near", 86_400_000)
    catalog = Catalog(root)
    query = "SELECT group_id, committed_at, expires_at FROM committed_offsets ORDER BY group_id"
    far, near = catalog.query(query).rows
    assert far == ("far", None, None)
    assert near[1].isoformat() == "1970-01-02T00:00:00"
    query = "SELECT group_id, due_at FROM expiring_offsets ORDER BY group_id"
    assert [row[1] and row[1].isoformat() for row in catalog.query(query).rows] == [
        None,
        "1970-01-09T00:00:00",
    ]
