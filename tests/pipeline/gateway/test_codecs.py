"""Requests are read, and heartbeats answered, as kafka-python writes and reads them.

`tests/schemas/test_kafka_codec.py` tries all messages; here is what is asked of the coordinator.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
)

from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.apis import HEARTBEAT, OFFSET_COMMIT, OFFSET_FETCH
from group_coordinator.pipeline.gateway.wire import InvalidFrame, read_body
from group_coordinator.schemas import messages
from group_coordinator.schemas.kafka.structs import GroupRequest
from tests.examples import examples, texts

COMMIT, FETCH = OFFSET_COMMIT, OFFSET_FETCH
TEXT = texts(max_size=300)
MAYBE = st.none() | TEXT
INT16, INT32, INT64 = (st.integers(-(2**n), 2**n - 1) for n in (15, 31, 63))
# Bytes before and after the body.
PADDING = b"\xff" * 7


def versions(api: ApiHandler) -> Iterator[int]:
    return iter(api.row.versions)


def read(api: ApiHandler, request: Any, version: int) -> Any:
    """What a request that kafka-python writes is read as."""
    body = bytes(request.encode(version=version))
    return read_body(api, version, PADDING + body + PADDING, len(PADDING))


@examples(20)
@given(TEXT, INT32, TEXT, MAYBE)
def test_heartbeats_are_read(
    group: str, generation: int, member: str, instance: str | None
) -> None:
    for version in versions(HEARTBEAT):
        request = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
        )
        kept = instance if version >= 3 else None
        body = messages.HeartbeatRequest(generation, member, kept)
        assert read(HEARTBEAT, request, version) == GroupRequest(group, body)


@examples(20)
@given(INT16)
def test_heartbeats_are_answered(code: int) -> None:
    for version in versions(HEARTBEAT):
        theirs = HeartbeatResponse(error_code=code).encode(version=version)
        assert HEARTBEAT.write(code, version) == theirs


TO_COMMIT = st.lists(
    st.tuples(TEXT, st.lists(st.tuples(INT32, INT64, INT32, MAYBE), max_size=3)), max_size=3
)


@examples(20)
@given(TEXT, INT32, TEXT, MAYBE, INT64, TO_COMMIT)
def test_commits_are_read(
    group: str,
    generation: int,
    member: str,
    instance: str | None,
    retention: int,
    topics: list[Any],
) -> None:
    topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
    for version in versions(COMMIT):
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            retention_time_ms=retention,
            topics=[
                topic_class(
                    name=name,
                    partitions=[
                        topic_class.OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=epoch,
                            committed_metadata=metadata,
                        )
                        for index, offset, epoch, metadata in partitions
                    ],
                )
                for name, partitions in topics
            ],
        )
        body = messages.OffsetCommitRequest(
            generation_id=generation,
            member_id=member,
            group_instance_id=instance if version >= 7 else None,
            retention_time_ms=retention if version <= 4 else None,
            topics=tuple(
                messages.OffsetCommitTopic(
                    name,
                    tuple(
                        messages.OffsetCommitPartition(
                            index, offset, epoch if version >= 6 else None, None, metadata
                        )
                        for index, offset, epoch, metadata in partitions
                    ),
                )
                for name, partitions in topics
            ),
        )
        assert read(COMMIT, request, version) == GroupRequest(group, body)


@pytest.mark.parametrize("api", [HEARTBEAT, COMMIT, FETCH], ids=lambda api: api.name)
def test_a_body_cut_anywhere_is_none(api: ApiHandler) -> None:
    for version in versions(api):
        request = _SOME[api.row.key]
        body = bytes(request.encode(version=version))
        for end in range(len(body)):
            with pytest.raises(InvalidFrame):
                read_body(api, version, body[:end], 0)


_COMMITTED = OffsetCommitRequest.OffsetCommitRequestTopic
_ASKED = OffsetFetchRequest.OffsetFetchRequestGroup
_SOME: dict[int, Any] = {
    12: HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i"),
    8: OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=1,
        member_id="m",
        group_instance_id="i",
        topics=[
            _COMMITTED(
                name="t",
                partitions=[
                    _COMMITTED.OffsetCommitRequestPartition(
                        partition_index=1, committed_offset=2, committed_metadata="x"
                    )
                ],
            )
        ],
    ),
    9: OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[1, 2])],
        groups=[
            _ASKED(
                group_id="g",
                topics=[_ASKED.OffsetFetchRequestTopics(name="t", partition_indexes=[1, 2])],
            )
        ],
    ),
}


# What a later client may add to any struct: fields 3 and 200, which this version does not know.
TAGS = b"\x02" + b"\x03\x01x" + b"\xc8\x01\x02yz"


def test_fields_of_later_clients_are_passed_over() -> None:
    beat = b"\x02g" + struct.pack(">i", 5) + b"\x02m" + b"\x00" + TAGS
    assert HeartbeatRequest.decode(beat, version=4).member_id == "m"
    assert read_body(HEARTBEAT, 4, beat, 0).body == messages.HeartbeatRequest(5, "m")

    partition = struct.pack(">iqi", 1, 2, 3) + b"\x00" + TAGS
    topic = b"\x02t" + b"\x02" + partition + TAGS
    commit = b"\x02g" + struct.pack(">i", 5) + b"\x02m" + b"\x00" + b"\x02" + topic + TAGS
    assert OffsetCommitRequest.decode(commit, version=9).topics[0].name == "t"
    (found,) = read_body(COMMIT, 9, commit, 0).body.topics
    assert found.partitions == (messages.OffsetCommitPartition(1, 2, 3, None, None),)

    topic = b"\x02t" + b"\x02" + struct.pack(">i", 4) + TAGS
    group = b"\x02g" + b"\x00" + struct.pack(">i", -1) + b"\x02" + topic + TAGS
    fetch = b"\x02" + group + b"\x01" + TAGS
    assert OffsetFetchRequest.decode(fetch, version=9).require_stable is True
    asked = read_body(FETCH, 9, fetch, 0)
    assert asked.require_stable is True
    assert asked.groups[0].topics == (messages.OffsetFetchTopic("t", (4,)),)


def test_a_null_that_must_not_be_is_no_request() -> None:
    null_group = struct.pack(">hih", -1, 1, 0)
    with pytest.raises(InvalidFrame, match="null"):
        read_body(HEARTBEAT, 0, null_group, 0)
    null_topics = struct.pack(">hi", 0, -1)
    with pytest.raises(InvalidFrame, match="null"):
        read_body(FETCH, 1, null_topics, 0)
