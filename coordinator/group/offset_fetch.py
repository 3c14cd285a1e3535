"""OffsetFetch. Source: Apache Kafka, OffsetMetadataManager.fetchOffsets and fetchAllOffsets."""

from __future__ import annotations

from group_coordinator.coordinator.authorization import DESCRIBE
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.offsets import Topics
from group_coordinator.schemas.apis import version_of
from group_coordinator.schemas.errors import NONE, ErrorCode
from group_coordinator.schemas.messages import (
    OffsetFetchPartition,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResult,
    RequestEvent,
)
from group_coordinator.schemas.records import NO_LEADER_EPOCH, OffsetCommitValue

INVALID_OFFSET = -1
LEADER_EPOCH_VERSION = 5


def offset_fetch(decision: Decision, event: RequestEvent, body: OffsetFetchRequest) -> None:
    """Answer with committed offsets; an unknown group, topic or partition has offset -1, no error.

    `require_stable` is ignored: without transactions every offset is stable.
    """
    version = version_of(event)
    with_epoch = version >= LEADER_EPOCH_VERSION
    offsets: Topics = {} if decision.group is None else decision.group.offsets.topics
    if body.topics is None:
        requested = [
            (name, tuple(sorted(partitions))) for name, partitions in sorted(offsets.items())
        ]
    else:
        requested = [(topic.name, topic.partition_indexes) for topic in body.topics]
    topics = []
    for name, indexes in requested:
        committed, code = offsets.get(name, {}), NONE
        if not decision.allows(event, DESCRIBE, name):
            # A request for all topics omits those that the sender may not describe, without an
            # error.
            if body.topics is None:
                continue
            committed, code = {}, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        results = tuple(_result(index, committed.get(index), with_epoch, code) for index in indexes)
        topics.append(OffsetFetchTopicResult(name, results))
    decision.answer(event, NONE, OffsetFetchResponse(tuple(topics)))


def _result(
    index: int, value: OffsetCommitValue | None, with_epoch: bool, code: ErrorCode
) -> OffsetFetchPartition:
    no_epoch = NO_LEADER_EPOCH if with_epoch else None
    if value is None:
        return OffsetFetchPartition(index, INVALID_OFFSET, no_epoch, "", code)
    epoch = value.leader_epoch if with_epoch else None
    return OffsetFetchPartition(index, value.offset, epoch, value.metadata)
