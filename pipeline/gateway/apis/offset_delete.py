"""OffsetDelete (API key 47; KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.coordinator_link import when_late
from group_coordinator.schemas import messages
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext

OffsetDeleteResponse = struct("OffsetDeleteResponse")


async def _answer(call: RequestContext, request: Any) -> Any:
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
    return OffsetDeleteResponse(error_code=when_late(decided.error_code), topics=deleted)


API = ApiHandler("OffsetDelete", _answer)
