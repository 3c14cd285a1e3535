"""The tables have the fields of the Structs, and rows are read as they were written."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from chispa.schema_comparer import assert_schema_equality
from deltalake import Schema
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from group_coordinator.schemas.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupProtocol,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    RequestEvent,
    Response,
    SyncGroupResponse,
)
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    CoordinatorRecord,
    GroupEvent,
    GroupMetadataValue,
    MemberMetadata,
)
from group_coordinator.schemas.tables import (
    OFFSETS_TOPIC,
    ON_DEMAND,
    REQUESTS,
    RESPONSES,
    TABLES,
    TOPIC_RECORDS,
    Table,
    to_arrow,
    to_events,
    to_requests,
)


def heartbeat(request_id: str, sent_at: int | None = None) -> RequestEvent:
    return RequestEvent(
        request_id, "g", "heartbeat", sent_at=sent_at, heartbeat=HeartbeatRequest(1, "m")
    )


def test_every_table_of_the_contract_is_there():
    assert list(TABLES) == [
        "requests",
        "responses",
        "rejected_requests",
        "offsets_topic",
        "offsets_history",
        "group_events",
        "coordinators",
    ]


def test_widths_and_times_are_those_of_the_contract():
    schema = REQUESTS.schema
    assert schema.field("api_version").type == pa.int16()
    assert schema.field("sent_at").type == pa.timestamp("us", tz="UTC")
    join = schema.field("join_group").type
    assert join.field("session_timeout_ms").type == pa.int32()
    protocol = join.field("protocols").type.value_field
    assert protocol.name == "element"
    assert protocol.type == pa.struct([("name", pa.string()), ("metadata", pa.binary())])


def test_every_column_is_nullable_at_every_depth():
    def nullable(field: pa.Field) -> bool:
        inner = [field.type.field(i) for i in range(field.type.num_fields)]
        return field.nullable and all(map(nullable, inner))

    for table in TABLES.values():
        assert all(map(nullable, table.schema)), table.name


def test_an_answer_without_fields_has_no_column():
    assert "heartbeat" not in RESPONSES.schema.names
    assert "delete_groups" not in RESPONSES.schema.names
    assert "leave_group" in RESPONSES.schema.names


def test_only_the_offsets_topic_is_partitioned():
    assert {name: table.partition_by for name, table in TABLES.items() if table.partition_by} == {
        "offsets_topic": ("segment",)
    }
    assert OFFSETS_TOPIC.schema.field("segment").type == pa.int64()


@pytest.mark.parametrize(
    "table", [*TABLES.values(), *ON_DEMAND, TOPIC_RECORDS], ids=lambda table: table.name
)
def test_spark_types_are_those_that_delta_keeps(table: Table):
    kept = StructType.fromJson(json.loads(Schema.from_arrow(table.schema).to_json()))
    assert_schema_equality(from_arrow_schema(table.schema), kept)


def test_spark_types_follow():
    types = {
        field.name: field.dataType.simpleString() for field in from_arrow_schema(RESPONSES.schema)
    }
    assert types["error_code"] == "smallint"
    assert types["responded_at"] == "timestamp"
    assert types["leave_group"] == (
        "struct<members:array<struct<member_id:string,group_instance_id:string,error_code:smallint>>>"
    )


def test_requests_come_back_as_they_went_in():
    join = JoinGroupRequest(
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupProtocol("range", b"\x00\xff"),),
        member_id="m",
    )
    delete = OffsetDeleteRequest((OffsetDeleteTopic("t", (0, 2)), OffsetDeleteTopic("u", ())))
    rows = to_requests(
        [
            RequestEvent("1", "g", "join_group", sent_at=1_700_000_000_123, join_group=join),
            RequestEvent("2", "g", "leave_group", leave_group=LeaveGroupRequest(())),
            RequestEvent("3", "g", "offset_delete", offset_delete=delete),
        ]
    ).to_pylist()
    assert rows[0]["sent_at"] == datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)
    assert rows[0]["join_group"] == {
        "session_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\x00\xff"}],
        "member_id": "m",
        "rebalance_timeout_ms": None,
        "group_instance_id": None,
        "reason": None,
    }
    assert rows[0]["leave_group"] is None
    assert rows[1]["leave_group"] == {"members": []}
    assert [topic["partitions"] for topic in rows[2]["offset_delete"]["topics"]] == [[0, 2], []]


def test_a_null_list_is_not_an_empty_one():
    rows = to_arrow(
        RESPONSES,
        [
            Response("1", "g", "leave_group", 0, "NONE", leave_group=LeaveGroupResponse(None)),
            Response("2", "g", "leave_group", 0, "NONE", leave_group=LeaveGroupResponse(())),
            Response("3", "g", "sync_group", 0, "NONE", sync_group=SyncGroupResponse()),
        ],
    ).to_pylist()
    assert [row["leave_group"] for row in rows] == [{"members": None}, {"members": []}, None]
    assert rows[2]["sync_group"]["assignment"] == b""


def test_a_null_body_is_a_column_of_nulls():
    response = Response("1", "g", "heartbeat", 0, "NONE", heartbeat=HeartbeatResponse())
    table = to_arrow(RESPONSES, [response] * 3)
    assert table.column("join_group").null_count == 3
    assert table.schema == RESPONSES.schema


def test_columns_can_be_given_beside_the_rows():
    member = MemberMetadata("m", None, "c", "/127.0.0.1", 1, 2, b"s", b"a")
    value = GroupMetadataValue("consumer", 1, "range", "m", 5, (member,))
    record = CoordinatorRecord(3, GROUP_METADATA, "g", 5, group_metadata=value)
    tombstone = CoordinatorRecord(3, GROUP_METADATA, "g", 6)
    columns = {"log_offset": pa.array([7, 8], pa.int64()), "segment": pa.array([0, 0], pa.int64())}
    rows = to_arrow(OFFSETS_TOPIC, [record, tombstone], columns).to_pylist()
    assert [row["log_offset"] for row in rows] == [7, 8]
    assert rows[0]["group_metadata"]["members"][0]["subscription"] == b"s"
    assert rows[1]["group_metadata"] is None


def test_requests_of_one_millisecond_keep_their_order_in_microseconds():
    requests = [heartbeat("b", 5), heartbeat("a", 5), heartbeat("c", 6), heartbeat("d", None)]
    micros = to_requests(requests).column("sent_at").cast(pa.int64()).to_pylist()
    assert micros == [5000, 5001, 6000, None]


def test_a_crowded_millisecond_does_not_run_into_the_next():
    requests = [heartbeat(str(i), 5) for i in range(1200)] + [heartbeat("x", 6)]
    micros = to_requests(requests).column("sent_at").cast(pa.int64()).to_pylist()
    assert micros == sorted(micros)
    assert micros[-2:] == [5999, 6000]


def test_a_group_s_events_of_one_batch_keep_their_order() -> None:
    events = [GroupEvent(at=5, group_id=group, event="transition") for group in "aabab"]
    micros = to_events(events).column("at").cast(pa.int64()).to_pylist()
    assert micros == [5000, 5001, 5000, 5002, 5001]
