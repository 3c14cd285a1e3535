"""OffsetDelete (API key 47; KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.consumer.group import OffsetDeleteRequest, OffsetDeleteResponse

from group_coordinator.pipeline.gateway.api import Api
from group_coordinator.pipeline.gateway.coordinator_link import when_late
from group_coordinator.schemas import messages

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.call import Call

_Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic


async def _answer(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    body = messages.OffsetDeleteRequest(
        tuple(
            messages.OffsetDeleteTopic(
                topic.name, tuple(each.partition_index for each in topic.partitions)
            )
            for topic in request.topics
        )
    )
    timeout_ms = call.services.link.commit_timeout_ms
    event = call.event("offset_delete", request.group_id, body)
    decided = await call.ask_in_time(event, timeout_ms)
    deleted = decided.offset_delete.topics if decided.offset_delete is not None else ()
    return OffsetDeleteResponse(
        error_code=when_late(decided.error_code),
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    _Topic.OffsetDeleteResponsePartition(
                        partition_index=each.partition_index, error_code=each.error_code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in deleted
        ],
    )


API = Api(OffsetDeleteRequest, _answer)
