"""A group's records in the offsets topic: `group_value` makes one, `replay` restores the group.

Source: Apache Kafka, GroupCoordinatorRecordHelpers, GroupMetadataManager.replay,
OffsetMetadataManager.replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.classic_group import ClassicGroup, ClassicGroupMember
from group_coordinator.coordinator.group.decision import Append
from group_coordinator.coordinator.group.state import STABLE
from group_coordinator.schemas.errors import NONE, ErrorCode
from group_coordinator.schemas.messages import JoinGroupProtocol
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    NO_TIMESTAMP,
    OFFSET_COMMIT,
    RECORD_KEY,
    CoordinatorRecord,
    GroupMetadataValue,
    MemberMetadata,
    binary_size,
)

# Kafka's record batch header, and an upper bound of one record's own framing within it, bytes.
_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 21

_key_of = attrgetter(*RECORD_KEY)


def group_value(
    group: ClassicGroup, assignments: Mapping[str, bytes] | None = None
) -> GroupMetadataValue:
    """Return the value of the group's record; `assignments` by member id replace the members'."""
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=_timestamp(group),
        members=tuple(
            _member_value(group, member, assignments) for member in group.members.values()
        ),
    )


def new_group_value(group: ClassicGroup) -> GroupMetadataValue:
    """Return the value of a new group's first record: generation 0, without members."""
    return GroupMetadataValue("", 0, None, None, _timestamp(group), ())


def _timestamp(group: ClassicGroup) -> int:
    return NO_TIMESTAMP if group.state_timestamp is None else group.state_timestamp


def _member_value(
    group: ClassicGroup, member: ClassicGroupMember, assignments: Mapping[str, bytes] | None
) -> MemberMetadata:
    if assignments is None:
        assignment = member.assignment
    else:
        assignment = assignments.get(member.member_id, b"")
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(group.protocol_name),
        assignment=assignment,
    )


def size_limit(config: GroupCoordinatorConfig) -> Append:
    """Return an `Append` that refuses, as Kafka's log does, a batch over max.message.bytes.

    Kafka's coordinator maps the log's MESSAGE_TOO_LARGE to UNKNOWN_SERVER_ERROR. If the log cannot
    be written at all, the whole batch fails and no request of it is answered.
    """

    def append(records: Sequence[CoordinatorRecord]) -> ErrorCode:
        size = _BATCH_OVERHEAD + sum(_RECORD_OVERHEAD + binary_size(record) for record in records)
        return NONE if size <= config.max_message_bytes else ErrorCode.UNKNOWN_SERVER_ERROR

    return append


# --- replay ---------------------------------------------------------------------------------------


def replay(group_id: str, records: Iterable[CoordinatorRecord]) -> ClassicGroup | None:
    """Restore a group from its records; return None if all its keys end with tombstones.

    The last record of a key wins: by `log_offset`, or in the given order where that is null. A
    group with a record of an unknown kind is restored without members and offsets, and
    `unknown_kinds` names the kinds.
    """
    value: GroupMetadataValue | None = None
    group = ClassicGroup(group_id)
    unknown: dict[Any, str] = {}
    for record in sorted(records, key=lambda record: record.log_offset or 0):
        if record.record_type == GROUP_METADATA:
            value = record.group_metadata
        elif record.record_type == OFFSET_COMMIT:
            _replay_offset(group, record)
        elif record.is_tombstone:
            unknown.pop(_key_of(record), None)
        else:
            unknown[_key_of(record)] = record.record_type
    if unknown:
        return ClassicGroup(group_id, unknown_kinds=", ".join(sorted(set(unknown.values()))))
    if value is not None:
        _restore(group, value)
    elif not group.offsets:
        return None
    return group


def _replay_offset(group: ClassicGroup, record: CoordinatorRecord) -> None:
    if record.topic is None or record.topic_partition is None:
        return
    if record.offset_commit is None:
        group.offsets.drop(record.topic, record.topic_partition)
    else:
        group.offsets.commit(record.topic, record.topic_partition, record.offset_commit)


def _restore(group: ClassicGroup, value: GroupMetadataValue) -> None:
    group.recorded = True
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader_id = group.announced_leader_id = value.leader
    if value.current_state_timestamp != NO_TIMESTAMP:
        group.state_timestamp = value.current_state_timestamp
    for stored in value.members:
        timeout = stored.rebalance_timeout
        group.add(
            ClassicGroupMember(
                member_id=stored.member_id,
                group_instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=stored.session_timeout if timeout == -1 else timeout,
                session_timeout_ms=stored.session_timeout,
                # The log holds only the selected protocol, so the member offers no other.
                protocols=(JoinGroupProtocol(value.protocol or "", stored.subscription),),
                assignment=stored.assignment,
            )
        )
    if value.members:
        # Set without a transition: a stored group with members was Stable.
        group.state = STABLE
    group.learn_subscriptions()
