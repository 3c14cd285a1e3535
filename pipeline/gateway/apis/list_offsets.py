"""ListOffsets (API key 2): the first offset, the end, and the first offset from a time on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from pipeline.gateway.api import Api
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from pipeline.gateway.call import Call

_Topic = ListOffsetsResponse.ListOffsetsTopicResponse
_LATEST = -1
_EARLIEST = -2
# The first offset on the broker itself (KIP-405): here that is the first one.
_EARLIEST_LOCAL = -4
_NONE = -1
_EPOCH = 0


async def _answer(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics = []
    for topic in request.topics:
        partitions = [
            await _partition(call, topic.name, each.partition_index, each.timestamp)
            for each in topic.partitions
        ]
        topics.append(_Topic(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


async def _partition(call: Call, topic: str, partition: int, timestamp: int) -> Any:
    log = call.services.topics.log(topic, partition)
    code, found = ErrorCode.NONE, (_NONE, _NONE)
    if log is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif timestamp == _LATEST:
        found = (log.end(partition), _NONE)
    elif timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        found = (log.start(partition), _NONE)
    elif timestamp >= 0:
        reading = call.services.topics.in_thread(log.offset_for_time, partition, timestamp)
        found = await reading or found
    else:
        # -3, the offset of the greatest timestamp, and whatever else comes to be.
        code = ErrorCode.UNSUPPORTED_VERSION
    offset, of_time = found
    return _Topic.ListOffsetsPartitionResponse(
        partition_index=partition,
        error_code=int(code),
        timestamp=of_time,
        offset=offset,
        leader_epoch=_NONE if offset == _NONE else _EPOCH,
    )


API = Api(ListOffsetsRequest, 1, 10, _answer)
