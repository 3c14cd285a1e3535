"""Requests are packed alike, whoever wrote the file."""

from __future__ import annotations

import json

import pyarrow as pa

from pipeline.stream.packed import KEY_WIDTH
from pipeline.stream.packing import pack_rows
from schemas.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchRequest,
    OffsetFetchTopic,
    RequestEvent,
    SyncGroupAssignment,
    SyncGroupRequest,
    decode_request,
)
from schemas.tables import REQUESTS, to_requests
from tests.pipeline.rows import heartbeat

OF_MANY_KINDS = [
    heartbeat("1", "g", sent_at=1_700_000_000_123),
    heartbeat("none", "g", sent_at=None),
    heartbeat('quotes " and \\ and \n', "großer Gruß 😀", sent_at=5),
    RequestEvent(
        "2",
        "g",
        "join_group",
        9,
        "c",
        "/h",
        "p",
        7,
        join_group=JoinGroupRequest(
            session_timeout_ms=10,
            protocol_type="consumer",
            protocols=(JoinGroupProtocol("range", b"\x00\xff"), JoinGroupProtocol("sticky", b"")),
        ),
    ),
    RequestEvent(
        "3",
        "g",
        "sync_group",
        sync_group=SyncGroupRequest(1, "m", assignments=(SyncGroupAssignment("m", b"\x01"),)),
    ),
    RequestEvent("4", "g", "sync_group", sync_group=SyncGroupRequest(1, "m")),
    RequestEvent(
        "5", "g", "leave_group", leave_group=LeaveGroupRequest(members=(LeavingMember("m"),))
    ),
    RequestEvent("6", "g", "describe_groups", describe_groups=DescribeGroupsRequest()),
    RequestEvent("7", "g", "delete_groups", delete_groups=DeleteGroupsRequest()),
    RequestEvent(
        "8",
        "g",
        "offset_commit",
        offset_commit=OffsetCommitRequest(
            topics=(
                OffsetCommitTopic(
                    "t",
                    (
                        OffsetCommitPartition(0, 1),
                        OffsetCommitPartition(1, 2, committed_metadata="meta"),
                    ),
                ),
                OffsetCommitTopic("empty", ()),
            )
        ),
    ),
    RequestEvent("9", "g", "offset_fetch", offset_fetch=OffsetFetchRequest(topics=None)),
    RequestEvent(
        "10",
        "g",
        "offset_fetch",
        offset_fetch=OffsetFetchRequest(topics=(OffsetFetchTopic("t", (0, 1)),)),
    ),
]


def packed(rows: pa.Table) -> list[tuple[str | None, str]]:
    return [(row["group_id"], row["event"]) for row in pack_rows(rows).to_pylist()]


def test_each_request_comes_back_as_it_was_sent():
    found = packed(to_requests(OF_MANY_KINDS))
    assert [group for group, _ in found] == [event.group_id for event in OF_MANY_KINDS]
    assert [decode_request(event[KEY_WIDTH:]) for _, event in found] == OF_MANY_KINDS


def test_the_key_is_the_time_in_microseconds():
    before, now, never = packed(
        pa.table(
            {
                "request_id": ["a", "b", "c"],
                "sent_at": pa.array([-5, 1_700_000_000_000_001, None], pa.timestamp("us", "UTC")),
            }
        )
    )
    assert before == (None, "0" * KEY_WIDTH + '{"request_id":"a","sent_at":-1}')
    assert now[1] == '001700000000000001{"request_id":"b","sent_at":1700000000000}'
    assert never[1] == "9" * KEY_WIDTH + '{"request_id":"c"}'


def test_other_writers_types_are_as_good():
    rows = pa.table(
        {
            "group_id": pa.array(["g"], pa.large_string()),
            "api_version": pa.array([3], pa.int64()),
            "sent_at": pa.array([1_500_000_999], pa.timestamp("ns")),
        }
    )
    ((group, event),) = packed(rows)
    assert (group, event[:KEY_WIDTH]) == ("g", "000000000001500000")
    assert json.loads(event[KEY_WIDTH:]) == {"group_id": "g", "api_version": 3, "sent_at": 1500}


def test_a_row_of_nothing_is_an_event():
    rows = pa.Table.from_pylist([{}, {}], REQUESTS.schema)
    assert packed(rows) == [(None, "9" * KEY_WIDTH + "{}")] * 2
    assert packed(rows.slice(0, 0)) == []


def test_what_is_not_utf8_is_replaced_and_nothing_else():
    rows = to_requests(OF_MANY_KINDS)
    at = rows.schema.get_field_index("client_id")
    bad = pa.array([b"caf\xe9"] * len(rows)).view(pa.string())
    found = packed(rows.set_column(at, "client_id", bad))
    expected = [json.loads(event[KEY_WIDTH:]) for _, event in packed(rows)]
    assert [json.loads(event[KEY_WIDTH:]) for _, event in found] == [
        {**each, "client_id": "caf\ufffd"} for each in expected
    ]
