"""ListOffsets (API key 2): the first offset, the end offset, and the first offset for a time."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import DESCRIBE, TOPIC
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.topic_logs import MOST_PARTITIONS_AT_ONCE
from group_coordinator.pipeline.topics import UnknownTopicOrPartition
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.pipeline.gateway.topic_logs import TopicLogs

ListOffsetsResponse = struct("ListOffsetsResponse")
log = logging.getLogger(__name__)

_Topic = ListOffsetsResponse.ListOffsetsTopicResponse
_LATEST = -1
_EARLIEST = -2
# The offset of the latest timestamp (KIP-734).
_MAX_TIMESTAMP = -3
# The first offset on the broker's disk (KIP-405). It is the first offset: there is no tiered
# storage.
_EARLIEST_LOCAL = -4
# The last offset in tiered storage (KIP-1005). There is none.
_LATEST_TIERED = -5
_NONE = -1
_EPOCH = 0


async def _list_offsets(call: RequestContext, request: Any) -> Any:
    names = {topic.name for topic in request.topics}
    allowed = {name for name in names if call.authorize(DESCRIBE, TOPIC, name)}
    counts = Counter(
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    )
    found = []
    for topic in request.topics:
        results: list[Any] = []
        if topic.name not in allowed:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            results = [_result(each.partition_index, code) for each in topic.partitions]
        else:
            for at in range(0, len(topic.partitions), MOST_PARTITIONS_AT_ONCE):
                some = topic.partitions[at : at + MOST_PARTITIONS_AT_ONCE]
                read = partial(_partitions, topic.name, some, counts)
                results += await call.services.topics.read_logs(read, call.owner)
        found.append(_Topic(name=topic.name, partitions=results))
    return ListOffsetsResponse(topics=found)


def _partitions(
    topic: str, asked: Sequence[Any], counts: Mapping[tuple[str, int], int], logs: TopicLogs
) -> list[Any]:
    results = []
    is_fresh = False
    for each in asked:
        if counts[topic, each.partition_index] > 1:
            # Kafka refuses a partition that the request has more than once.
            results.append(_result(each.partition_index, ErrorCode.INVALID_REQUEST))
        else:
            found = _partition(logs, topic, each.partition_index, each.timestamp, is_fresh)
            results.append(found)
            is_fresh |= each.timestamp == _LATEST
    return results


def _partition(logs: TopicLogs, topic: str, partition: int, timestamp: int, is_fresh: bool) -> Any:
    code, offset, of_time = ErrorCode.NONE, _NONE, _NONE
    try:
        if timestamp == _LATEST:
            # The end offset includes records that another gateway has acknowledged.
            if not is_fresh:
                logs.refresh(topic)
            offset = logs.bounds(topic, partition).end
        elif timestamp in (_EARLIEST, _EARLIEST_LOCAL):
            offset = logs.bounds(topic, partition).start
        elif timestamp == _MAX_TIMESTAMP:
            offset, of_time = logs.offset_of_max_timestamp(topic, partition) or (_NONE, _NONE)
        elif timestamp == _LATEST_TIERED:
            # There is no such offset, but the call reports an unknown topic or partition.
            logs.bounds(topic, partition)
        elif timestamp >= 0:
            offset, of_time = logs.offset_for_time(topic, partition, timestamp) or (_NONE, _NONE)
        else:
            # Later versions of the API may define more negative timestamps.
            code = ErrorCode.UNSUPPORTED_VERSION
    except UnknownTopicOrPartition:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except (Failure, OSError) as error:
        # Clients retry after their backoff. The log has the reason for the operator.
        log.warning("%s-%d cannot be read: %s", topic, partition, error)
        code = ErrorCode.KAFKA_STORAGE_ERROR
    return _result(partition, code, offset, of_time)


def _result(partition: int, code: ErrorCode, offset: int = _NONE, of_time: int = _NONE) -> Any:
    return _Topic.ListOffsetsPartitionResponse(
        partition_index=partition,
        error_code=int(code),
        timestamp=of_time,
        offset=offset,
        leader_epoch=_NONE if offset == _NONE else _EPOCH,
    )


LIST_OFFSETS = ApiHandler("ListOffsets", _list_offsets, in_thread=True)
