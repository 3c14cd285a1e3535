"""Deletion of committed offsets: by OffsetDelete, with their topic, or after their retention time.

Source: Apache Kafka, OffsetMetadataManager (deleteOffsets, onPartitionsDeleted,
cleanupExpiredOffsets), ClassicGroup.offsetExpirationCondition; KIP-496, KIP-211, KAFKA-8730 (topics
without subscribers), KAFKA-13636 (only while Stable).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from group_coordinator.coordinator.authorization import READ
from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.group_admin import delete_group
from group_coordinator.coordinator.group.offset_commit import is_known_partition
from group_coordinator.coordinator.group.state import DEAD, EMPTY, STABLE
from group_coordinator.schemas.errors import NONE, ErrorCode
from group_coordinator.schemas.messages import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
    PartitionResult,
    RequestEvent,
    TopicResult,
)
from group_coordinator.schemas.records import NO_TIMESTAMP, CoordinatorRecord, OffsetCommitValue
from group_coordinator.schemas.rows import Catalogue

# The reasons in the tombstones.
_BY_REQUEST = "offset deleted by request"
_TOPIC_DELETED = "topic deleted"
_EXPIRED = "offsets expired"
# The latest time that a signed 64-bit integer can hold.
LAST_MS = 2**63 - 1

# Return the start of an offset's retention time, absolute ms.
BaseTimestamp = Callable[[OffsetCommitValue], int]


# --- OffsetDelete ---------------------------------------------------------------------------------


def offset_delete(decision: Decision, event: RequestEvent, body: OffsetDeleteRequest) -> None:
    """Delete committed offsets of topics that the group does not consume."""
    denied = frozenset(
        topic.name for topic in body.topics if not decision.allows(event, READ, topic.name)
    )
    if denied and all(topic.name in denied for topic in body.topics):
        decision.answer(event, NONE, OffsetDeleteResponse(tuple(map(_denied, body.topics))))
        return
    code = _validate(decision.group)
    if code is not NONE:
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
        if error is not NONE:
            decision.answer(event, error, OffsetDeleteResponse())
            return
        for record in records:
            group.offsets.drop(record.topic or "", record.topic_partition or 0)
        names = ", ".join(f"{record.topic}-{record.topic_partition}" for record in records)
        decision.note("offsets_deleted", f"{len(records)} offsets deleted by request: {names}")
    decision.answer(event, NONE, OffsetDeleteResponse(topics))


def _validate(group: ClassicGroup | None) -> ErrorCode:
    if group is None or group.state is DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not EMPTY and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP
    return NONE


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
            code = NONE
            if index in committed:
                records.append(decision.offset_record(topic.name, index, None, _BY_REQUEST))
        results.append(PartitionResult(index, int(code)))
    return TopicResult(topic.name, tuple(results))


# --- deleted topics -------------------------------------------------------------------------------


def deleted_since(catalogue: Catalogue, seen_at: int | None) -> set[str]:
    """Return the topics that were deleted since the group's last decision.

    `seen_at` (ms) is the time of the newest deletion that is applied to the group. None: unknown,
    as for a group that was loaded from its records; then a topic that was created again is omitted,
    because the offsets may belong to the new topic.
    """
    if seen_at is None:
        return catalogue.deleted.keys() - catalogue.partitions.keys()
    return {topic for topic, at in catalogue.deleted.items() if at > seen_at}


def delete_offsets(decision: Decision, topics: Iterable[str]) -> None:
    """Delete all committed offsets of these topics, in every group state, also if subscribed."""
    offsets = decision.present.offsets
    deleted = []
    for topic in sorted(topics):
        for index in sorted(offsets.get(topic)):
            # One by one: together they may exceed max.message.bytes.
            if decision.append(decision.offset_record(topic, index, None, _TOPIC_DELETED)) is NONE:
                offsets.drop(topic, index)
                deleted.append(f"{topic}-{index}")
    if deleted:
        names = ", ".join(deleted)
        decision.note("offsets_deleted", f"{len(deleted)} offsets of deleted topics: {names}")


# --- retention ------------------------------------------------------------------------------------


def cleanup(decision: Decision) -> None:
    """Delete the expired offsets, and the group if it is then Empty without offsets."""
    group = decision.group
    if group is None:
        return
    expired = []
    for topic, index in expired_offsets(group, decision.now, decision.config.offsets_retention_ms):
        # One by one: together they may exceed max.message.bytes. The next run retries failures.
        if decision.append(decision.offset_record(topic, index, None, _EXPIRED)) is NONE:
            group.offsets.drop(topic, index)
            expired.append(f"{topic}-{index}")
    if expired:
        names = ", ".join(expired)
        decision.note("offsets_expired", f"{len(expired)} offsets past their retention: {names}")
    if group.is_vacant:
        delete_group(decision, "no members and no offsets are left")


def expired_offsets(group: ClassicGroup, now: int, retention_ms: int) -> list[tuple[str, int]]:
    """Return topic and partition of each offset that is expired at `now`."""
    base = _base_timestamp(group)
    if base is None:
        return []
    return [
        (topic, index)
        for topic, partitions in group.offsets.items()
        if not group.is_subscribed(topic)
        for index, value in partitions.items()
        if _expires_at(value, base, retention_ms) <= now
    ]


def next_expiry(group: ClassicGroup, config: GroupCoordinatorConfig) -> int | None:
    """Return the time (ms) at which the first offset expires if the group does not change.

    None: no offset expires, or only after `LAST_MS`, because timers have 64 bits.
    """
    base = _base_timestamp(group)
    if base is None:
        return None
    first = min(
        (
            _expires_at(value, base, config.offsets_retention_ms)
            for topic, partitions in group.offsets.items()
            if not group.is_subscribed(topic)
            for value in partitions.values()
        ),
        default=None,
    )
    return None if first is None or first > LAST_MS else first


def _expires_at(value: OffsetCommitValue, base: BaseTimestamp, retention_ms: int) -> int:
    if value.expire_timestamp != NO_TIMESTAMP:
        return value.expire_timestamp
    return base(value) + retention_ms


def _base_timestamp(group: ClassicGroup) -> BaseTimestamp | None:
    """Return the function for the time at which an offset's retention begins.

    None while no offset of the group may expire.
    """
    if group.protocol_type is None:
        return _committed_at
    if group.state is EMPTY:
        emptied_at = group.state_timestamp
        return _committed_at if emptied_at is None else lambda _value: emptied_at
    consumers_known = group.uses_consumer_protocol and group.subscribed_topics is not None
    if consumers_known and group.state is STABLE:
        return _committed_at
    return None


def _committed_at(value: OffsetCommitValue) -> int:
    return value.commit_timestamp
