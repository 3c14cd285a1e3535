"""OffsetFetch (API key 9): the committed offsets of one group; from version 8 on, of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.each_group import ask_each
from group_coordinator.schemas import messages
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.gateway.request_context import RequestContext

OffsetFetchResponse = struct("OffsetFetchResponse")
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
# From this version on, the response has an error code for the whole group.
_WITH_CODE = 2
# From this version on, a request names any number of groups (KIP-709).
_MANY_GROUPS = 8
_NO_OFFSET = -1


async def _answer(call: RequestContext, request: Any) -> Any:
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

    return await ask_each(call, "offset_fetch", asked, call.ask, respond)


def _group(
    call: RequestContext,
    group_id: str,
    body: messages.OffsetFetchRequest,
    decided: messages.Response,
) -> Any:
    topics: Sequence[messages.OffsetFetchTopicResult] = ()
    if decided.error_code and call.version < _WITH_CODE:
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


API = ApiHandler("OffsetFetch", _answer, takes_room=True, aside=True)
