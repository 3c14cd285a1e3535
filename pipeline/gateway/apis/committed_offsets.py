"""The APIs of committed offsets: OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.api import ApiHandler, CoordinatorHandler, unchanged
from group_coordinator.pipeline.gateway.coordinator_link import when_late
from group_coordinator.pipeline.gateway.request_context import send_each_group
from group_coordinator.schemas import messages
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.schemas.kafka.structs import GroupRequest


# --- OffsetCommit (API key 8) ---------------------------------------------------------------------


def _commit_response(
    _call: RequestContext, request: GroupRequest, decided: messages.Response
) -> Any:
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


OFFSET_COMMIT = ApiHandler(
    "OffsetCommit",
    CoordinatorHandler(unchanged("offset_commit"), _commit_response, has_deadline=True),
)


# --- OffsetFetch (API key 9): from version 8 on, of several groups --------------------------------


OffsetFetchResponse = struct("OffsetFetchResponse")
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
# From this version on, the response has an error code for the whole group.
_GROUP_CODE_VERSION = 2
# From this version on, a request names any number of groups (KIP-709).
_MANY_GROUPS = 8
_NO_OFFSET = -1


async def _offset_fetch(call: RequestContext, request: Any) -> Any:
    many = call.version >= _MANY_GROUPS
    asked = [
        (each.group_id, messages.OffsetFetchRequest(each.topics, request.require_stable))
        for each in (request.groups if many else (request,))
    ]

    def respond(answers: Sequence[messages.Response]) -> Any:
        groups = [
            _group(call, *each, decided) for each, decided in zip(asked, answers, strict=True)
        ]
        if many:
            return OffsetFetchResponse(groups=groups)
        (only,) = groups
        return OffsetFetchResponse(topics=only.topics, error_code=only.error_code)

    return await send_each_group(call, "offset_fetch", asked, call.send, respond)


def _group(
    call: RequestContext,
    group_id: str,
    body: messages.OffsetFetchRequest,
    decided: messages.Response,
) -> Any:
    topics: Sequence[messages.OffsetFetchTopicResult] = ()
    if decided.error_code and call.version < _GROUP_CODE_VERSION:
        topics = _all_failed(body.topics or (), decided.error_code)
    elif decided.offset_fetch is not None:
        topics = decided.offset_fetch.topics
    return _Group(group_id=group_id, topics=topics, error_code=decided.error_code)


def _all_failed(
    topics: Sequence[messages.OffsetFetchTopic], code: int
) -> list[messages.OffsetFetchTopicResult]:
    return [
        messages.OffsetFetchTopicResult(
            topic.name,
            tuple(
                messages.OffsetFetchPartition(each, _NO_OFFSET, None, "", code)
                for each in topic.partition_indexes
            ),
        )
        for topic in topics
    ]


OFFSET_FETCH = ApiHandler("OffsetFetch", _offset_fetch, counts_each_group=True, in_thread=True)


# --- OffsetDelete (API key 47; KIP-496) -----------------------------------------------------------


OffsetDeleteResponse = struct("OffsetDeleteResponse")


async def _offset_delete(call: RequestContext, request: Any) -> Any:
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
    decided = await call.send_within(event, timeout_ms)
    deleted = decided.offset_delete.topics if decided.offset_delete is not None else ()
    return OffsetDeleteResponse(error_code=when_late(decided.error_code), topics=deleted)


OFFSET_DELETE = ApiHandler("OffsetDelete", _offset_delete)
