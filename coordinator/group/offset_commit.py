"""OffsetCommit.

Source: Apache Kafka, OffsetMetadataManager.commitOffset, ClassicGroup.validateOffsetCommit.
"""

from __future__ import annotations

from group_coordinator.coordinator.authorization import READ
from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.rebalance import start_session
from group_coordinator.coordinator.group.state import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from group_coordinator.schemas.apis import version_of
from group_coordinator.schemas.errors import NONE, ErrorCode
from group_coordinator.schemas.messages import (
    NO_GENERATION,
    NO_MEMBER_ID,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    PartitionResult,
    RequestEvent,
    TopicResult,
)
from group_coordinator.schemas.records import NO_LEADER_EPOCH, NO_TIMESTAMP, OffsetCommitValue

GROUP_ID_NOT_FOUND_VERSION = 9

# One code per partition of the request, by position: a request may name a partition twice.
Codes = list[ErrorCode]
# Topic, partition, and the position of the partition's code.
Pending = list[tuple[str, OffsetCommitPartition, int]]


def offset_commit(decision: Decision, event: RequestEvent, body: OffsetCommitRequest) -> None:
    """Decide an OffsetCommit, with a code per partition."""
    codes: Codes = []
    pending: Pending = []
    for topic in body.topics:
        if not decision.allows(event, READ, topic.name):
            codes += [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(topic.partitions)
            continue
        for partition in topic.partitions:
            if is_known_partition(decision.topics, topic.name, partition.partition_index):
                pending.append((topic.name, partition, len(codes)))
                codes.append(NONE)
            else:
                codes.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if pending:
        error = _validate(decision, event, body)
        if error is NONE:
            error = _commit(decision, body, pending, codes)
        if error is not NONE:
            for _, _, position in pending:
                codes[position] = error
    answer_commit(decision, event, body, codes)


def is_known_partition(topics: dict[str, int] | None, topic: str, partition: int) -> bool:
    """Whether the catalogue has the partition; without a catalogue every partition exists."""
    if partition < 0:
        return False
    return topics is None or partition < topics.get(topic, 0)


def answer_commit(
    decision: Decision, event: RequestEvent, body: OffsetCommitRequest, codes: Codes
) -> None:
    """Answer with one code per partition.

    The top-level code is the code of all partitions if it is the same, and NONE if it differs.
    """
    distinct = set(codes)
    # `int` of an Enum's member is slow, so a code that all partitions share is converted once.
    number = iter([int(codes[0])] * len(codes) if len(distinct) == 1 else map(int, codes))
    topics = tuple(
        [
            TopicResult(
                topic.name,
                tuple([PartitionResult(p.partition_index, next(number)) for p in topic.partitions]),
            )
            for topic in body.topics
        ]
    )
    shared = codes[0] if len(distinct) == 1 else NONE
    decision.answer(event, shared, OffsetCommitResponse(topics))


def refuse_commit(
    decision: Decision, event: RequestEvent, body: OffsetCommitRequest, code: ErrorCode
) -> None:
    """Answer every partition with the same code."""
    answer_commit(decision, event, body, [code for topic in body.topics for _ in topic.partitions])


def renew_session(
    decision: Decision, event: RequestEvent, body: OffsetCommitRequest, deadline: int
) -> None:
    """Renew the session of a member that committed, although the commit's deadline has passed.

    A member that commits in time must not expire because batches are slow. The session counts from
    the commit's deadline (ms), because a row that is read after its deadline may be a copy.
    """
    if _validate(decision, event, body) is NONE and decision.group is not None:
        member = decision.group.members.get(body.member_id or NO_MEMBER_ID)
        if member is not None and member.session_deadline is not None:
            renewed = deadline + member.session_timeout_ms
            member.session_deadline = max(member.session_deadline, renewed)


def _validate(decision: Decision, event: RequestEvent, body: OffsetCommitRequest) -> ErrorCode:
    """Return NONE if this member, or a consumer without membership, may commit now."""
    generation = NO_GENERATION if body.generation_id is None else body.generation_id
    member_id = body.member_id or NO_MEMBER_ID
    group = decision.group
    if group is None:
        if generation < 0:
            return NONE
        if version_of(event) >= GROUP_ID_NOT_FOUND_VERSION:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is EMPTY:
        return NONE
    if generation >= 0 or member_id or body.group_instance_id is not None:
        code = group.validate_member(member_id, body.group_instance_id)
        if code is not NONE:
            return code
        if generation != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
    elif group.state is not EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return NONE


def _commit(
    decision: Decision, body: OffsetCommitRequest, pending: Pending, codes: Codes
) -> ErrorCode:
    """Store the valid offsets; return the code of a failed append, which then holds for all.

    Creates the group of a consumer without membership, even if no offset is stored, as Kafka does.
    """
    group = decision.group or ClassicGroup(decision.group_id, state_timestamp=decision.now)
    if group.state in (STABLE, PREPARING_REBALANCE):
        start_session(decision, group.members[body.member_id or NO_MEMBER_ID])
    expire_at = NO_TIMESTAMP
    if body.retention_time_ms is not None and body.retention_time_ms != -1:
        expire_at = _as_long(decision.now + body.retention_time_ms)
    reason = f"committed by {body.member_id}" if body.member_id else "committed without membership"
    values: list[tuple[str, int, OffsetCommitValue]] = []
    for topic, partition, position in pending:
        metadata = partition.committed_metadata
        if metadata and is_too_long(metadata, decision.config.offset_metadata_max_bytes):
            codes[position] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            value = _value(partition, decision.now, expire_at)
            values.append((topic, partition.partition_index, value))
    if values:
        error = decision.append(*(decision.offset_record(*value, reason) for value in values))
        if error is not NONE:
            return error
    decision.group = group
    for topic, index, committed in values:
        group.offsets.commit(topic, index, committed)
    return NONE


def _value(partition: OffsetCommitPartition, now: int, expire_at: int) -> OffsetCommitValue:
    epoch = partition.committed_leader_epoch
    committed_at = partition.commit_timestamp
    return OffsetCommitValue(
        partition.committed_offset,
        NO_LEADER_EPOCH if epoch is None else epoch,
        partition.committed_metadata or "",
        now if committed_at is None or committed_at == -1 else committed_at,
        expire_at,
    )


def _as_long(number: int) -> int:
    """Wrap an integer to Java's signed 64-bit `long`."""
    return (number + 2**63) % 2**64 - 2**63


def is_too_long(metadata: str | None, limit: int) -> bool:
    """Whether a commit's metadata is longer than offset.metadata.max.bytes.

    Kafka measures Java's String.length: UTF-16 units, not bytes, despite the setting's name.
    """
    if not metadata or 2 * len(metadata) <= limit:
        return False
    if metadata.isascii():
        return len(metadata) > limit
    return len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > limit
