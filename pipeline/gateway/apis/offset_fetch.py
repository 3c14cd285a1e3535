"""OffsetFetch (API key 9): of one group, and from version 8 on of any number."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer.group import OffsetFetchRequest, OffsetFetchResponse

from pipeline.gateway.api import Api
from schemas import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.gateway.call import Call

_Topic = OffsetFetchResponse.OffsetFetchResponseTopic
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_TopicOfGroup = _Group.OffsetFetchResponseTopics
# From this version on a request names any number of groups (KIP-709).
_MANY_GROUPS = 8
# From this version on an answer has a code for the whole group.
_WITH_CODE = 2
_NO_OFFSET = -1
_NO_EPOCH = -1


async def _answer(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if call.version < _MANY_GROUPS:
        decided = await _ask(call, request.group_id, request.topics, request.require_stable)
        topics: Sequence[messages.OffsetFetchTopicResult] = ()
        if decided.offset_fetch is not None:
            topics = decided.offset_fetch.topics
        elif call.version < _WITH_CODE:
            topics = _all_failed(request.topics or (), decided.error_code)
        return OffsetFetchResponse(
            topics=[
                _Topic(
                    name=topic.name,
                    partitions=_partitions(_Topic.OffsetFetchResponsePartition, topic),
                )
                for topic in topics
            ],
            error_code=decided.error_code,
        )
    answers = await asyncio.gather(
        *(
            _ask(call, group.group_id, group.topics, request.require_stable)
            for group in request.groups
        )
    )
    return OffsetFetchResponse(groups=[_group(decided) for decided in answers])


async def _ask(
    call: Call, group_id: str, topics: Sequence[Any] | None, require_stable: bool
) -> messages.Response:
    wanted = None
    if topics is not None:
        wanted = tuple(
            messages.OffsetFetchTopic(topic.name, tuple(topic.partition_indexes))
            for topic in topics
        )
    body = messages.OffsetFetchRequest(wanted, require_stable)
    return await call.ask("offset_fetch", group_id, body)


def _group(decided: messages.Response) -> Any:
    fetched = decided.offset_fetch.topics if decided.offset_fetch is not None else ()
    return _Group(
        group_id=decided.group_id,
        topics=[
            _TopicOfGroup(
                name=topic.name,
                partitions=_partitions(_TopicOfGroup.OffsetFetchResponsePartitions, topic),
            )
            for topic in fetched
        ],
        error_code=decided.error_code,
    )


def _partitions(partition_class: Any, topic: messages.OffsetFetchTopicResult) -> list[Any]:
    return [
        partition_class(
            partition_index=each.partition_index,
            committed_offset=each.committed_offset,
            committed_leader_epoch=(
                _NO_EPOCH if each.committed_leader_epoch is None else each.committed_leader_epoch
            ),
            metadata=each.metadata,
            error_code=each.error_code,
        )
        for each in topic.partitions
    ]


def _all_failed(topics: Sequence[Any], code: int) -> list[messages.OffsetFetchTopicResult]:
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


API = Api(OffsetFetchRequest, 1, 9, _answer)
