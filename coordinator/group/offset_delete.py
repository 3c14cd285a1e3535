"""OffsetDelete (KIP-496). Source: Apache Kafka, OffsetMetadataManager.deleteOffsets."""

from __future__ import annotations

from group_coordinator.coordinator.authorization import READ
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.group import Group
from group_coordinator.coordinator.group.offset_commit import is_known_partition
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
    PartitionResult,
    RequestEvent,
    TopicResult,
)
from group_coordinator.schemas.records import CoordinatorRecord

REASON = "offset deleted by request"


def offset_delete(decision: Decision, event: RequestEvent, body: OffsetDeleteRequest) -> None:
    """Delete committed offsets of topics that the group does not consume."""
    denied = frozenset(
        topic.name for topic in body.topics if not decision.allows(event, READ, topic.name)
    )
    if denied and all(topic.name in denied for topic in body.topics):
        decision.answer(
            event, ErrorCode.NONE, OffsetDeleteResponse(tuple(map(_denied, body.topics)))
        )
        return
    code = _validate(decision.group)
    if code is not ErrorCode.NONE:
        decision.answer(event, code, OffsetDeleteResponse())
        return
    group = decision.present
    records: list[CoordinatorRecord] = []
    topics = tuple(
        _denied(topic) if topic.name in denied else _decide(decision, topic, records)
        for topic in body.topics
    )
    if records:
        error = decision.append(*records)
        if error is not ErrorCode.NONE:
            decision.answer(event, error, OffsetDeleteResponse())
            return
        for record in records:
            group.offsets.drop(record.topic or "", record.topic_partition or 0)
        names = ", ".join(f"{record.topic}-{record.topic_partition}" for record in records)
        decision.note("offsets_deleted", f"{len(records)} offsets deleted by request: {names}")
    decision.answer(event, ErrorCode.NONE, OffsetDeleteResponse(topics))


def _validate(group: Group | None) -> ErrorCode:
    if group is None or group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def _denied(topic: OffsetDeleteTopic) -> TopicResult:
    code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return TopicResult(topic.name, tuple(PartitionResult(each, code) for each in topic.partitions))


def _decide(
    decision: Decision, topic: OffsetDeleteTopic, records: list[CoordinatorRecord]
) -> TopicResult:
    group = decision.present
    subscribed = group.is_subscribed(topic.name)
    committed = group.offsets.get(topic.name)
    results = []
    for index in topic.partitions:
        if not is_known_partition(decision.topics, topic.name, index):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif subscribed:
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            code = ErrorCode.NONE
            if index in committed:
                records.append(decision.offset_record(topic.name, index, None, REASON))
        results.append(PartitionResult(index, int(code)))
    return TopicResult(topic.name, tuple(results))
