"""Requests are packed alike, whoever wrote the file."""

from __future__ import annotations

import json
import math
from datetime import date, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from group_coordinator.coordinator.group.partition import PartitionSet
from group_coordinator.pipeline.stream import packed_events
from group_coordinator.pipeline.stream.packed_events import (
    KEY_WIDTH,
    MOST_GROWTH,
    NO_TIME,
    of_partitions,
    pack_rows,
    pack_together,
    select_rows,
)
from group_coordinator.pipeline.tables.request_log import in_lanes
from group_coordinator.schemas.decoding import Malformed, decode_request
from group_coordinator.schemas.messages import (
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
)
from group_coordinator.schemas.tables import REQUESTS, to_requests
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
    assert never[1] == NO_TIME + '{"request_id":"c"}'


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
    assert packed(rows) == [(None, NO_TIME + "{}")] * 2
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


# --- columns of other types -----------------------------------------------------------------------


def as_other_text(texts: list[bytes], type_: pa.DataType) -> pa.Array:
    as_bytes = pa.array(texts, pa.binary())
    if pa.types.is_dictionary(type_):
        encoded = as_bytes.dictionary_encode()
        values = encoded.dictionary.view(type_.value_type)
        return pa.DictionaryArray.from_arrays(encoded.indices, values)
    if pa.types.is_string_view(type_):
        return as_bytes.cast(pa.binary_view()).view(type_)
    if pa.types.is_large_string(type_):
        return as_bytes.cast(pa.large_binary()).view(type_)
    return as_bytes.cast(type_)


@pytest.mark.parametrize(
    "type_",
    [
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary(4),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int32(), pa.binary()),
    ],
    ids=str,
)
def test_a_text_is_read_whatever_type_its_writer_gave_it(type_: pa.DataType) -> None:
    texts = as_other_text([b"text", b"caf\xe9"], type_)
    rows = pa.table({"request_id": texts, "group_id": texts, "api": texts})
    assert [(group, json.loads(event[KEY_WIDTH:])) for group, event in packed(rows)] == [
        (text, {"request_id": text, "group_id": text, "api": text})
        for text in ("text", "caf\ufffd")
    ]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1.5, math.nan]),
        pa.array([True, False]),
        pa.array([Decimal("9" * 38)] * 2),
        pa.array([date(1, 1, 1)] * 2),
        pa.array([2**31 - 1] * 2, pa.int32()).view(pa.date32()),
        pa.array([timedelta(1)] * 2),
        pa.array([[("k", b"\xff")]] * 2, pa.map_(pa.string(), pa.binary())),
        pa.array([["x"], [None]]),
        pa.array([[1, 2]] * 2, pa.list_(pa.int8(), 2)),
        pa.array([{"a": {"b": 1}}] * 2),
    ],
    ids=lambda values: str(values.type),
)
def test_a_value_of_another_type_is_refused_by_its_field(values: pa.Array) -> None:
    whole = to_requests([heartbeat("a"), heartbeat("b")])
    for name in ("api", "heartbeat", "sent_at", "offset_commit", "request_id"):
        at = whole.schema.get_field_index(name)
        for _, event in packed(whole.set_column(at, name, values)):
            malformed = decode_request(event[KEY_WIDTH:])
            assert isinstance(malformed, Malformed)
            assert f"`$.{name}" in malformed.message
            assert malformed.request_id == (None if name == "request_id" else event_id(event))


def event_id(event: str) -> str:
    return json.loads(event[KEY_WIDTH:])["request_id"]


def test_a_group_id_of_another_type_names_no_group() -> None:
    whole = to_requests([heartbeat("a")])
    found = packed(whole.set_column(1, "group_id", pa.array([[1]])))
    assert [group for group, _ in found] == [None]


def test_a_field_of_another_type_is_refused_and_its_neighbours_are_read() -> None:
    bodies = pa.array([{"generation_id": 1, "member_id": {"a": 1}, "added": [1.5]}])
    rows = pa.table({"request_id": ["a"], "heartbeat": bodies})
    ((_, event),) = packed(rows)
    assert json.loads(event[KEY_WIDTH:])["heartbeat"] == {
        "generation_id": 1,
        "member_id": ["struct<a: int64>"],
    }


def test_fields_of_structs_in_lists_are_read_likewise() -> None:
    members = [[{"member_id": b"caf\xe9", "reason": 1.5}], None, []]
    type_ = pa.large_list(pa.struct({"member_id": pa.binary(), "reason": pa.float64()}))
    bodies = pa.StructArray.from_arrays([pa.array(members, type_)], ["members"])
    rows = pa.table({"request_id": ["a", "b", "c"], "leave_group": bodies})
    found = [json.loads(event[KEY_WIDTH:])["leave_group"] for _, event in packed(rows)]
    assert found == [
        {"members": [{"member_id": "caf\ufffd", "reason": ["double"]}]},
        {},
        {"members": []},
    ]


def test_a_file_without_a_column_of_ours_has_its_rows_all_the_same() -> None:
    rows = pa.table({"other": [1, 2]}).select([])
    assert packed(rows) == [(None, NO_TIME + "{}")] * 2


@pytest.mark.parametrize("micros", [2**63 - 1, -(2**63), 10**18, 10**18 - 1])
def test_a_time_that_no_calendar_has_is_a_time_before_none(micros: int) -> None:
    whole = to_requests([heartbeat("a"), heartbeat("b", sent_at=None)])
    times = pa.array([micros, None], pa.timestamp("us", "UTC"))
    at = whole.schema.get_field_index("sent_at")
    first, second = packed(whole.set_column(at, "sent_at", times))
    assert [event_id(event) for _, event in sorted([second, first])] == ["a", "b"]


def test_rows_without_any_column_are_numbered() -> None:
    rows = select_rows(pa.table({"other": [1, 2]}).select([]), 7, None)
    (found,) = pack_together([rows])
    assert found.column("event").to_pylist() == [f"{number:0{KEY_WIDTH}}{{}}" for number in (7, 8)]


@pytest.mark.parametrize(
    "requests",
    [
        [heartbeat("", "")],
        [heartbeat("\x01" * 1_000, "\x02" * 1_000)],
        OF_MANY_KINDS,
        [
            RequestEvent(
                "",
                "",
                "offset_commit",
                offset_commit=OffsetCommitRequest(
                    topics=(OffsetCommitTopic("", (OffsetCommitPartition(0, 0),) * 100),) * 9
                ),
            )
        ],
    ],
)
def test_no_row_grows_more_than_is_said(requests: list[RequestEvent]) -> None:
    rows = select_rows(in_lanes(to_requests(requests * 20)).rows, 0, None)
    (found,) = pack_together([rows])
    assert found.nbytes <= MOST_GROWTH * rows.nbytes


@pytest.mark.parametrize("first", [None, 7])
@pytest.mark.parametrize("mine", [(), (0,), (1, 3), (0, 1, 2, 3)])
def test_a_node_packs_the_requests_of_its_partitions_under_the_numbers_that_all_rows_have(
    first: int | None, mine: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [heartbeat(str(number), f"g{number % 5}", sent_at=number) for number in range(40)]
    rows = to_requests([*requests, heartbeat("without a group", None)])
    partitions = PartitionSet(frozenset(mine), 4)
    wanted = of_partitions(pack_rows(rows, first), partitions)
    packed = []
    monkeypatch.setattr(
        packed_events,
        "_object",
        lambda columns, length, whole=packed_events._object: (
            packed.append(length) or whole(columns, length)
        ),
    )
    assert pack_rows(rows, first, partitions).equals(wanted)
    assert max(packed, default=0) == wanted.num_rows


def test_a_group_id_of_another_writers_type_is_the_same_groups() -> None:
    rows = to_requests([heartbeat(str(number), f"g{number}") for number in range(8)])
    partitions = PartitionSet(frozenset((0, 1)), 3)
    wanted = pack_rows(rows, 1, partitions)
    place = rows.schema.get_field_index("group_id")
    for kind in (pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())):
        foreign = rows.set_column(place, "group_id", rows.column("group_id").cast(kind))
        assert pack_rows(foreign, 1, partitions).equals(wanted)
    assert pack_rows(rows.drop_columns(["group_id"]), 1, partitions).num_rows == len(rows)
