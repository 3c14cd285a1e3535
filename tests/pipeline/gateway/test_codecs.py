"""Codecs of our own and kafka-python's classes have the same bytes, in each version."""

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
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from group_coordinator.pipeline.gateway.api import Api
from group_coordinator.pipeline.gateway.apis import heartbeat, offset_commit, offset_fetch
from group_coordinator.pipeline.gateway.apis.heartbeat import Heartbeat
from group_coordinator.pipeline.gateway.apis.offset_commit import OffsetCommit
from group_coordinator.pipeline.gateway.apis.offset_fetch import Fetched, OffsetFetch
from group_coordinator.pipeline.gateway.fields import FlexibleReader, InvalidFrame
from group_coordinator.pipeline.gateway.wire import read_body
from group_coordinator.schemas import messages
from tests.examples import examples, texts

HEARTBEAT, COMMIT, FETCH = heartbeat.API, offset_commit.API, offset_fetch.API
TEXT = texts(max_size=300)
MAYBE = st.none() | TEXT
INT16, INT32, INT64 = (st.integers(-(2**n), 2**n - 1) for n in (15, 31, 63))
# Bytes before and after the body.
PADDING = b"\xff" * 7


def versions(api: Api) -> Iterator[int]:
    return iter(api.row.versions)


def read(api: Api, request: Any, version: int) -> Any:
    """What the codec makes of a request that kafka-python writes."""
    assert api.codec is not None
    body = bytes(request.encode(version=version))
    found, end = api.codec.read(PADDING + body + PADDING, len(PADDING), version)
    assert end == len(PADDING) + len(body)
    return found


def written(api: Api, response: Any, version: int) -> bytes:
    assert api.codec is not None
    return api.codec.write(response, version)


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
        assert read(HEARTBEAT, request, version) == Heartbeat(group, body)


@examples(20)
@given(INT16)
def test_heartbeats_are_answered(code: int) -> None:
    for version in versions(HEARTBEAT):
        theirs = HeartbeatResponse(error_code=code).encode(version=version)
        assert written(HEARTBEAT, code, version) == theirs


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
                            index, offset, epoch if version >= 6 else -1, None, metadata
                        )
                        for index, offset, epoch, metadata in partitions
                    ),
                )
                for name, partitions in topics
            ),
        )
        assert read(COMMIT, request, version) == OffsetCommit(group, body)


@examples(20)
@given(st.lists(st.tuples(TEXT, st.lists(st.tuples(INT32, INT16), max_size=3)), max_size=3))
def test_commits_are_answered(topics: list[Any]) -> None:
    topic_class = OffsetCommitResponse.OffsetCommitResponseTopic
    theirs = OffsetCommitResponse(
        topics=[
            topic_class(
                name=name,
                partitions=[
                    topic_class.OffsetCommitResponsePartition(
                        partition_index=index, error_code=code
                    )
                    for index, code in partitions
                ],
            )
            for name, partitions in topics
        ]
    )
    ours = [
        messages.TopicResult(name, tuple(messages.PartitionResult(*each) for each in partitions))
        for name, partitions in topics
    ]
    for version in versions(COMMIT):
        assert written(COMMIT, ours, version) == theirs.encode(version=version)


TO_FETCH = st.lists(st.tuples(TEXT, st.lists(INT32, max_size=3)), max_size=3)


@examples(20)
@given(st.lists(st.tuples(TEXT, st.none() | TO_FETCH), min_size=1, max_size=3), st.booleans())
def test_fetches_of_offsets_are_read(groups: list[Any], stable: bool) -> None:
    topic_class = OffsetFetchRequest.OffsetFetchRequestTopic
    group_class = OffsetFetchRequest.OffsetFetchRequestGroup
    for version in versions(FETCH):
        # Version 1 cannot ask for all topics.
        asked = [(name, [] if version == 1 and each is None else each) for name, each in groups]
        first, first_topics = asked[0]
        request = OffsetFetchRequest(
            group_id=first,
            topics=None
            if first_topics is None
            else [
                topic_class(name=name, partition_indexes=indexes) for name, indexes in first_topics
            ],
            groups=[
                group_class(
                    group_id=name,
                    member_id="m" if stable else None,
                    member_epoch=3,
                    topics=None
                    if topics is None
                    else [
                        group_class.OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
                        for topic, indexes in topics
                    ],
                )
                for name, topics in asked
            ],
            require_stable=stable,
        )
        expected = tuple(
            OffsetFetch(
                name,
                messages.OffsetFetchRequest(
                    None
                    if topics is None
                    else tuple(
                        messages.OffsetFetchTopic(topic, tuple(indexes))
                        for topic, indexes in topics
                    ),
                    stable and version >= 7,
                ),
            )
            for name, topics in (asked if version >= 8 else asked[:1])
        )
        assert read(FETCH, request, version) == expected


FOUND = st.lists(
    st.tuples(TEXT, st.lists(st.tuples(INT32, INT64, INT32, TEXT, INT16), max_size=3)), max_size=3
)


@examples(20)
@given(st.lists(st.tuples(TEXT, FOUND, INT16), min_size=1, max_size=3))
def test_fetches_of_offsets_are_answered(groups: list[Any]) -> None:
    group_class = OffsetFetchResponse.OffsetFetchResponseGroup
    topics_class = group_class.OffsetFetchResponseTopics
    topic_class = OffsetFetchResponse.OffsetFetchResponseTopic

    def topics(found: list[Any], of: Any, partition_class: Any) -> list[Any]:
        return [
            of(
                name=name,
                partitions=[
                    partition_class(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        metadata=metadata,
                        error_code=code,
                    )
                    for index, offset, epoch, metadata, code in partitions
                ],
            )
            for name, partitions in found
        ]

    theirs = OffsetFetchResponse(
        topics=topics(groups[0][1], topic_class, topic_class.OffsetFetchResponsePartition),
        error_code=groups[0][2],
        groups=[
            group_class(
                group_id=name,
                topics=topics(found, topics_class, topics_class.OffsetFetchResponsePartitions),
                error_code=code,
            )
            for name, found, code in groups
        ],
    )
    ours = [
        Fetched(
            name,
            [
                messages.OffsetFetchTopicResult(
                    topic, tuple(messages.OffsetFetchPartition(*each) for each in partitions)
                )
                for topic, partitions in found
            ],
            code,
        )
        for name, found, code in groups
    ]
    for version in versions(FETCH):
        answered = ours if version >= 8 else ours[:1]
        assert written(FETCH, answered, version) == theirs.encode(version=version)


def test_an_offset_without_an_epoch_has_none_on_the_wire() -> None:
    found = messages.OffsetFetchPartition(0, 7, None, "")
    groups = [Fetched("g", [messages.OffsetFetchTopicResult("t", (found,))], 0)]
    answer = OffsetFetchResponse.decode(written(FETCH, groups, 5), version=5)
    assert answer.topics[0].partitions[0].committed_leader_epoch == -1


@pytest.mark.parametrize("api", [HEARTBEAT, COMMIT, FETCH], ids=lambda api: api.name)
def test_a_body_cut_anywhere_is_none(api: Api) -> None:
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
    (asked,) = read_body(FETCH, 9, fetch, 0)
    topics = (messages.OffsetFetchTopic("t", (4,)),)
    assert asked == OffsetFetch("g", messages.OffsetFetchRequest(topics, True))


def test_a_null_that_must_not_be_is_no_request() -> None:
    null_group = struct.pack(">hih", -1, 1, 0)
    with pytest.raises(InvalidFrame, match="null"):
        read_body(HEARTBEAT, 0, null_group, 0)
    null_topics = struct.pack(">hi", 0, -1)
    with pytest.raises(InvalidFrame, match="null"):
        read_body(FETCH, 1, null_topics, 0)


def test_a_count_beyond_the_frame_costs_no_memory() -> None:
    with pytest.raises(InvalidFrame, match="2147483647 items"):
        read_body(FETCH, 1, struct.pack(">hi", 0, 2**31 - 1), 0)
    with pytest.raises(InvalidFrame, match="longer than its frame"):
        FlexibleReader(b"\xff\xff\xff\xff\x0f", 0).items(lambda: 0)
