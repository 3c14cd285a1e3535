"""OffsetCommit (API key 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetCommitResponse

from pipeline.gateway.api import Api
from schemas import messages

if TYPE_CHECKING:
    from pipeline.gateway.call import Call

_Topic = OffsetCommitResponse.OffsetCommitResponseTopic
_Partition = _Topic.OffsetCommitResponsePartition
# The versions that say for how long an offset is kept.
_WITH_RETENTION = range(2, 5)


async def _answer(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    body = messages.OffsetCommitRequest(
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms if call.version in _WITH_RETENTION else None,
        topics=tuple(
            messages.OffsetCommitTopic(
                topic.name,
                tuple(
                    messages.OffsetCommitPartition(
                        each.partition_index,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        None,
                        each.committed_metadata,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
    decided = await call.ask("offset_commit", request.group_id, body)
    if decided.offset_commit is None:
        code = decided.error_code
        results = {(t.name, p.partition_index): code for t in body.topics for p in t.partitions}
    else:
        results = {
            (topic.name, each.partition_index): each.error_code
            for topic in decided.offset_commit.topics
            for each in topic.partitions
        }
    return OffsetCommitResponse(
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    _Partition(
                        partition_index=each.partition_index,
                        error_code=results.get((topic.name, each.partition_index), 0),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(OffsetCommitRequest, 2, 9, _answer)
