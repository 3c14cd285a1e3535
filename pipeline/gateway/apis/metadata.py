"""Metadata (API key 3): the gateways, and the topics with their partitions.

Every gateway serves every partition. The partition's name and number choose its leader among those
alive, so that consumers spread over them. There are no topic ids: versions from 10 on, which have
them, get zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from pipeline.gateway.api import Api
from pipeline.tables.topics import InvalidTopic, check_name
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.gateway.call import Call

_Topic = MetadataResponse.MetadataResponseTopic
_NO_ID = UUID(int=0)


async def _answer(call: Call, request: MetadataRequest) -> MetadataResponse:
    brokers = call.services.brokers
    counts = call.services.topics.counts()
    # Version 0 has no null: no topics are all topics.
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = [_topic(call, name, counts[name]) for name in sorted(counts)]
    else:
        topics = [_asked_for(call, each.name, each.topic_id, counts) for each in request.topics]
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=each.node_id, host=each.host, port=each.port, rack=None
            )
            for each in brokers.alive()
        ],
        cluster_id=call.services.cluster_id,
        controller_id=brokers.alive()[0].node_id,
        topics=topics,
    )


def _asked_for(call: Call, name: str | None, topic_id: UUID, counts: Mapping[str, int]) -> Any:
    if name is None:
        code = int(ErrorCode.UNKNOWN_TOPIC_ID)
        return _Topic(error_code=code, name=None, topic_id=topic_id, partitions=[])
    if name in counts:
        return _topic(call, name, counts[name])
    code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        check_name(name)
    except InvalidTopic:
        code = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
    return _Topic(error_code=code, name=name, topic_id=_NO_ID, partitions=[])


def _topic(call: Call, name: str, count: int) -> Any:
    partitions = []
    for number in range(count):
        leader = call.services.brokers.serving(f"{name}-{number}").node_id
        partitions.append(
            _Topic.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=leader,
                leader_epoch=0,
                replica_nodes=[leader],
                isr_nodes=[leader],
                offline_replicas=[],
            )
        )
    return _Topic(
        error_code=0, name=name, topic_id=_NO_ID, is_internal=False, partitions=partitions
    )


API = Api(MetadataRequest, 0, 12, _answer)
