"""OffsetFetch. Source: Apache Kafka, OffsetMetadataManager.fetchOffsets and fetchAllOffsets."""

from __future__ import annotations

from coordinator.group.offsets import Topics
from coordinator.group.step import Turn
from schemas.errors import ErrorCode
from schemas.messages import (
    NEWEST_VERSION,
    OffsetFetchPartition,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResult,
    RequestEvent,
)
from schemas.records import NO_LEADER_EPOCH, OffsetCommitValue

INVALID_OFFSET = -1
LEADER_EPOCH_VERSION = 5


def offset_fetch(turn: Turn, event: RequestEvent, body: OffsetFetchRequest) -> None:
    """Answer with committed offsets; an unknown group, topic or partition has offset -1, no error.

    `require_stable` has nothing to wait for: without transactions no offset is ever unstable.
    """
    version = NEWEST_VERSION["offset_fetch"] if event.api_version is None else event.api_version
    with_epoch = version >= LEADER_EPOCH_VERSION
    offsets: Topics = {} if turn.group is None else turn.group.offsets.topics
    if body.topics is None:
        asked = [(name, tuple(sorted(partitions))) for name, partitions in sorted(offsets.items())]
    else:
        asked = [(topic.name, topic.partition_indexes) for topic in body.topics]
    topics = tuple(
        OffsetFetchTopicResult(
            name,
            tuple(
                _result(index, offsets.get(name, {}).get(index), with_epoch) for index in indexes
            ),
        )
        for name, indexes in asked
    )
    turn.answer(event, ErrorCode.NONE, OffsetFetchResponse(topics))


def _result(index: int, value: OffsetCommitValue | None, with_epoch: bool) -> OffsetFetchPartition:
    no_epoch = NO_LEADER_EPOCH if with_epoch else None
    if value is None:
        return OffsetFetchPartition(index, INVALID_OFFSET, no_epoch, "")
    epoch = value.leader_epoch if with_epoch else None
    return OffsetFetchPartition(index, value.offset, epoch, value.metadata)
