"""Requests become one string each, in an order that a second reading gives again."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from deltalake import write_deltalake
from pyspark.sql import functions as F

from coordinator.group.partition import PartitionSet, partition_for
from pipeline.stream.source import KEY_WIDTH, only, pack, partition_of, unpack
from pipeline.tables.request_log import RequestLog
from schemas.messages import (
    DescribeGroupsRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    RequestEvent,
    decode_request,
)
from schemas.tables import REQUESTS
from tests.pipeline.rows import heartbeat

pytestmark = pytest.mark.spark


def packed(spark, root: str):
    return pack(spark.read.format("delta").load(f"{root}/requests"))


def events(spark, root: str) -> list[str]:
    return unpack([row.event for row in packed(spark, root).collect()])


def test_an_event_comes_back_as_it_was_sent(spark, root):
    join = JoinGroupRequest(
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupProtocol("range", b"\x00\xff"),),
    )
    sent = [
        RequestEvent("1", "g", "join_group", 4, "c", "/h", "p", 1_700_000_000_123, join_group=join),
        RequestEvent(
            "2",
            "g",
            "describe_groups",
            sent_at=1_700_000_000_124,
            describe_groups=DescribeGroupsRequest(),
        ),
    ]
    RequestLog(root).append(sent)
    assert [decode_request(text) for text in events(spark, root)] == sent


def test_nulls_are_left_out_bytes_are_base64_times_are_ms(spark, root):
    join = JoinGroupRequest(
        session_timeout_ms=10,
        protocol_type="consumer",
        protocols=(JoinGroupProtocol("range", b"\x00\xff"),),
    )
    RequestLog(root).append([RequestEvent("1", "g", "join_group", sent_at=1234, join_group=join)])
    (text,) = events(spark, root)
    assert json.loads(text) == {
        "request_id": "1",
        "group_id": "g",
        "api": "join_group",
        "sent_at": 1234,
        "join_group": {
            "session_timeout_ms": 10,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": "AP8="}],
            "member_id": "",
        },
    }


def test_order_is_by_time_then_place_then_id(spark, root):
    log = RequestLog(root)
    log.append([heartbeat("e", sent_at=7), heartbeat("z", sent_at=6), heartbeat("y", sent_at=6)])
    log.append([heartbeat("none", sent_at=None), heartbeat("d", sent_at=7)])
    order = [json.loads(text)["request_id"] for text in events(spark, root)]
    assert order == ["z", "y", "d", "e", "none"]


def test_two_columns_and_a_second_reading_is_the_same(spark, root):
    RequestLog(root).append([heartbeat("a", "g1"), heartbeat("b", "g2")])
    first = packed(spark, root)
    assert first.dtypes == [("group_id", "string"), ("event", "string")]
    assert_df_equality(first, packed(spark, root), ignore_row_order=True)
    keys = first.select(F.substring("event", 1, KEY_WIDTH).alias("key")).collect()
    assert all(row.key.isdigit() for row in keys)


def test_a_broken_row_is_packed_like_any_other(spark, root):
    write_deltalake(f"{root}/requests", pa.Table.from_pylist([{}], REQUESTS.schema), mode="append")
    (row,) = packed(spark, root).collect()
    assert row.group_id is None
    assert row.event == "9" * KEY_WIDTH + "{}"


def test_the_jvm_finds_the_partition_that_the_coordinator_finds(spark):
    groups = ["", "a", "groupId", "ünïcödé", "😀 group", "x" * 300, "polygenelubricants"]
    groups += [f"group-{n}" for n in range(200)]
    frame = spark.createDataFrame([(group,) for group in [*groups, None]], "group_id string")
    found = frame.select("group_id", partition_of("group_id", 50).alias("partition")).collect()
    expected = {group: partition_for(group, 50) for group in groups} | {None: 0}
    assert {row["group_id"]: row["partition"] for row in found} == expected


def test_only_the_share_s_requests_come(spark):
    mine = [f"group-{n}" for n in range(20) if partition_for(f"group-{n}", 4) in (0, 3)]
    frame = spark.createDataFrame(
        [(f"group-{n}", "e") for n in range(20)] + [(None, "nobody's")],
        "group_id string, event string",
    )
    found = only(frame, PartitionSet({0, 3}, 4)).collect()
    assert sorted(row["group_id"] or "" for row in found) == sorted(["", *mine])
    assert only(frame, None) is frame
