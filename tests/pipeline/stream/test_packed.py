"""Packed events have an order that a second reading gives again."""

from __future__ import annotations

import json

import pyarrow as pa

from group_coordinator.coordinator.group.partition import PartitionSet, partition_for
from group_coordinator.pipeline.stream.packed_events import (
    KEY_WIDTH,
    PACKED_SCHEMA,
    of_partitions,
    pack_rows,
    unpack,
)
from group_coordinator.schemas.messages import JoinGroupProtocol, JoinGroupRequest, RequestEvent
from group_coordinator.schemas.tables import to_requests
from tests.pipeline.rows import heartbeat


def events(*requests: RequestEvent) -> list[str]:
    return unpack(pack_rows(to_requests(requests)).column("event").to_pylist())


def test_nulls_are_left_out_bytes_are_base64_times_are_ms() -> None:
    join = JoinGroupRequest(
        session_timeout_ms=10,
        protocol_type="consumer",
        protocols=(JoinGroupProtocol("range", b"\x00\xff"),),
    )
    (text,) = events(RequestEvent("1", "g", "join_group", sent_at=1234, join_group=join))
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


def test_order_is_by_time_then_place_then_id() -> None:
    first = [heartbeat("e", sent_at=7), heartbeat("z", sent_at=6), heartbeat("y", sent_at=6)]
    then = [heartbeat("none", sent_at=None), heartbeat("d", sent_at=7)]
    packed = [pack_rows(to_requests(each)).column("event").to_pylist() for each in (first, then)]
    # As the stream has them: a row for each of two files, one event a line.
    in_order = unpack(["\n".join(each) for each in packed])
    assert [json.loads(text)["request_id"] for text in in_order] == ["z", "y", "d", "e", "none"]
    assert unpack([]) == []


def test_every_event_begins_with_a_key_of_digits() -> None:
    packed = pack_rows(to_requests([heartbeat("a", "g1"), heartbeat("b", "g2", None)]))
    assert packed.schema == PACKED_SCHEMA
    assert all(event[:KEY_WIDTH].isdigit() for event in packed.column("event").to_pylist())


def test_only_the_partitions_events_come() -> None:
    groups = [*(f"group-{n}" for n in range(20)), None]
    events = pa.table([groups, ["e"] * len(groups)], schema=PACKED_SCHEMA)
    mine = [name for name in groups if name is None or partition_for(name, 4) in (0, 3)]
    found = of_partitions(events, PartitionSet({0, 3}, 4)).column("group_id").to_pylist()
    assert found == mine, "an event that names no group is partition 0's"
    assert None not in of_partitions(events, PartitionSet({3}, 4)).column("group_id").to_pylist()
    assert of_partitions(events, None) is events
