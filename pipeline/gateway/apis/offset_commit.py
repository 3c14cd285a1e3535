"""OffsetCommit (API key 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.api import ApiHandler, Decided
from group_coordinator.pipeline.gateway.coordinator_link import when_late
from group_coordinator.schemas import messages
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.schemas.kafka.structs import GroupRequest


def _ask(call: RequestContext, request: GroupRequest) -> messages.RequestEvent:
    return call.event("offset_commit", request.group_id, request.body)


def _respond(_call: RequestContext, request: GroupRequest, decided: messages.Response) -> Any:
    """Return the response, with an error code for each partition, in the order of the request."""
    results: dict[tuple[str, int], int] = {}
    if decided.offset_commit is not None:
        results = {
            (topic.name, each.partition_index): each.error_code
            for topic in decided.offset_commit.topics
            for each in topic.partitions
        }
    # Without a body, the error code of the response is that of all partitions.
    whole = decided.error_code if decided.offset_commit is None else 0
    topics = [
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
    return struct("OffsetCommitResponse")(topics=topics)


API = ApiHandler("OffsetCommit", Decided(_ask, _respond, in_time=True))
