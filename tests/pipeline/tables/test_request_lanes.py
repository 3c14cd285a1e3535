"""A file of requests tells which offsets partitions each of its row groups is about."""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from group_coordinator.coordinator.group.partition import PartitionSet, partition_for
from group_coordinator.pipeline.tables import request_log
from group_coordinator.pipeline.tables.request_log import (
    LANE_ROWS,
    MOST_LANES,
    TAG,
    RequestLog,
    in_lanes,
    wanted_row_groups,
)
from group_coordinator.pipeline.tables.store import open_table
from group_coordinator.schemas.messages import RequestEvent
from group_coordinator.schemas.tables import REQUESTS, to_requests
from tests.pipeline.rows import heartbeat

GROUPS = [f"group-{number}" for number in range(200)]


def of_groups(*groups: str | None):
    return to_requests([heartbeat(f"r{n}", group) for n, group in enumerate(groups)])  # type: ignore[arg-type]


@pytest.mark.parametrize("of", [1, 2, 4, 7, 10, 25, 50, 64, 100])
def test_no_number_of_partitions_has_a_request_passed_over(of: int) -> None:
    for groups in (GROUPS[:1], GROUPS[:3], [None]):
        tags = in_lanes(of_groups(*groups)).tags
        owners = {0 if group is None else partition_for(group, of) for group in groups}
        for partition in range(of):
            found = wanted_row_groups(tags, PartitionSet({partition}, of))
            assert found == [True] or partition not in owners
            # Kafka's 50 partitions, and numbers that divide it, are told apart exactly.
            assert found == [partition in owners] or 50 % of


def test_many_requests_are_in_lanes_and_each_group_keeps_its_order(monkeypatch) -> None:
    monkeypatch.setattr(request_log, "LANE_ROWS", 100)
    rows = of_groups(*[GROUPS[number * number % 200] for number in range(800)])
    layout = in_lanes(rows)
    assert layout.row_groups is not None
    assert 4 <= len(layout.row_groups) <= 8
    assert sum(layout.row_groups) == layout.rows.num_rows == 800
    for group in set(rows.column("group_id").to_pylist()):
        ids = [
            [row["request_id"] for row in each.to_pylist() if row["group_id"] == group]
            for each in (rows, layout.rows)
        ]
        assert ids[0] == ids[1]
    # Each row group has what the tag says, and nothing else.
    ends = list(accumulate(layout.row_groups, initial=0))
    for index, (first, end) in enumerate(pairwise(ends)):
        groups = set(layout.rows.slice(first, end - first).column("group_id").to_pylist())
        told = {
            partition
            for partition in range(50)
            if (wanted_row_groups(layout.tags, PartitionSet({partition}, 50)) or [])[index]
        }
        assert told == {partition_for(group, 50) for group in groups}


def test_the_lanes_of_few_groups_are_no_more_than_their_slots(monkeypatch) -> None:
    monkeypatch.setattr(request_log, "LANE_ROWS", 10)
    layout = in_lanes(of_groups(*["a", "b", "a"] * 200))
    assert layout.row_groups == [400, 200] or layout.row_groups == [200, 400]
    assert in_lanes(of_groups(*["a"] * 200)).row_groups == [200]
    assert len(in_lanes(of_groups(*GROUPS * 10)).row_groups or []) <= MOST_LANES


def test_few_requests_stay_as_they_come() -> None:
    rows = of_groups(*GROUPS)
    layout = in_lanes(rows)
    assert len(rows) < 2 * LANE_ROWS
    assert layout.row_groups is None
    assert layout.rows.column("request_id") == rows.column("request_id")


def test_columns_of_nulls_are_left_out_and_read_as_nulls(root: str) -> None:
    requests = [heartbeat("a"), RequestEvent(None, None, None)]  # type: ignore[arg-type]
    RequestLog(root).append(requests)
    (file,) = Path(root, REQUESTS.name).glob("*.parquet")
    names = pq.read_schema(file).names
    assert names == ["request_id", "group_id", "api", "sent_at", "heartbeat"]
    RequestLog(root).append(requests[1:])
    found = open_table(root, REQUESTS).to_pyarrow_table().sort_by("request_id")
    assert found.column_names == REQUESTS.schema.names
    assert found.select(names) == to_requests([*requests, requests[1]]).select(names)


@pytest.mark.parametrize("text", ["", "none", "1,,2", "x" * 10_000, '["g"]', "é"])
def test_a_tag_that_is_not_understood_says_nothing(text: str) -> None:
    assert wanted_row_groups({TAG: text}, PartitionSet({1}, 50)) is None


def test_a_file_without_a_tag_is_read() -> None:
    for tags in (None, {}, {"another's": "tag"}, {TAG: None}):
        assert wanted_row_groups(tags, PartitionSet({1}, 50)) is None
