"""OffsetCommit (API key 8)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kafka.protocol.consumer.group import OffsetCommitRequest

from group_coordinator.pipeline.gateway.api import Api, Codec, Decided
from group_coordinator.pipeline.gateway.coordinator_link import when_late
from group_coordinator.pipeline.gateway.fields import FlexibleReader, FlexibleWriter, Reader, Writer
from group_coordinator.schemas import messages

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.call import Call

_FLEXIBLE = 8
_WITH_INSTANCE = 7
_WITH_EPOCH = 6
# The versions that say for how long an offset is kept.
_WITH_RETENTION = range(2, 5)
_WITH_THROTTLE = 3
_NO_THROTTLE = 0
_NO_EPOCH = -1
_INDEX_OFFSET = struct.Struct(">iq")
_INDEX_OFFSET_EPOCH = struct.Struct(">iqi")


class OffsetCommit(NamedTuple):
    """A request: of which group, and what the coordinator is asked."""

    group_id: str
    body: messages.OffsetCommitRequest


def _ask(call: Call, request: OffsetCommit) -> messages.RequestEvent:
    return call.event("offset_commit", request.group_id, request.body)


def _respond(
    _call: Call, request: OffsetCommit, decided: messages.Response
) -> list[messages.TopicResult]:
    """A code for each partition, in the order of the request."""
    results: dict[tuple[str, int], int] = {}
    if decided.offset_commit is not None:
        results = {
            (topic.name, each.partition_index): each.error_code
            for topic in decided.offset_commit.topics
            for each in topic.partitions
        }
    # Without a body the code is that of all partitions.
    whole = decided.error_code if decided.offset_commit is None else 0
    return [
        messages.TopicResult(
            topic.name,
            tuple(
                messages.PartitionResult(
                    each.partition_index,
                    when_late(results.get((topic.name, each.partition_index), whole)),
                )
                for each in topic.partitions
            ),
        )
        for topic in request.body.topics
    ]


# --- the request --------------------------------------------------------------------------------


def _read(frame: bytes, at: int, version: int) -> tuple[OffsetCommit, int]:
    fields = FlexibleReader(frame, at) if version >= _FLEXIBLE else Reader(frame, at)

    def partition() -> messages.OffsetCommitPartition:
        if version >= _WITH_EPOCH:
            index, offset, epoch = fields.numbers(_INDEX_OFFSET_EPOCH)
        else:
            index, offset = fields.numbers(_INDEX_OFFSET)
            epoch = _NO_EPOCH
        metadata = fields.nullable_text()
        fields.end_struct()
        return messages.OffsetCommitPartition(index, offset, epoch, None, metadata)

    def topic() -> messages.OffsetCommitTopic:
        found = messages.OffsetCommitTopic(fields.text(), fields.items(partition))
        fields.end_struct()
        return found

    group_id = fields.text()
    body = messages.OffsetCommitRequest(
        generation_id=fields.int32(),
        member_id=fields.text(),
        group_instance_id=fields.nullable_text() if version >= _WITH_INSTANCE else None,
        retention_time_ms=fields.int64() if version in _WITH_RETENTION else None,
        topics=fields.items(topic),
    )
    fields.end_struct()
    return OffsetCommit(group_id, body), fields.at


# --- the response -------------------------------------------------------------------------------


def _write(topics: list[messages.TopicResult], version: int) -> bytes:
    fields = FlexibleWriter() if version >= _FLEXIBLE else Writer()

    def partition(result: messages.PartitionResult) -> None:
        fields.int32(result.partition_index)
        fields.int16(result.error_code)
        fields.end_struct()

    def topic(result: messages.TopicResult) -> None:
        fields.text(result.name)
        fields.items(result.partitions, partition)
        fields.end_struct()

    if version >= _WITH_THROTTLE:
        fields.int32(_NO_THROTTLE)
    fields.items(topics, topic)
    fields.end_struct()
    return bytes(fields)


API = Api(OffsetCommitRequest, Decided(_ask, _respond, in_time=True), Codec(_read, _write))
