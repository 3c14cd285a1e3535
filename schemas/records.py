"""The records of the offsets topic, and the events of the audit log.

An offsets-topic record has a key (`RECORD_KEY`) and a value (`RECORD_VALUES`); a record without a
value is a tombstone. The columns mirror Kafka's OffsetCommitKey/Value and GroupMetadataKey/Value,
plus `reason` and `request_id`.

Records of other kinds, such as Kafka's types 3 to 8 and 16 (KIP-848), belong to a later release.
Only their columns `key` and `value` are not null: they hold Kafka's bytes, so that such records are
kept and compacted without being decoded.
"""

from __future__ import annotations

from msgspec import Struct

from group_coordinator.schemas.messages import Int32, Int64, Timestamp

OFFSET_COMMIT = "offset_commit"
GROUP_METADATA = "group_metadata"
# The kinds that this release knows.
KNOWN_TYPES = (OFFSET_COMMIT, GROUP_METADATA)
# The columns of a record's key. The newest record with equal key columns (nulls included) wins.
RECORD_KEY = ("partition", "group_id", "record_type", "topic", "topic_partition", "key")
# The columns that may hold a record's value; all are null in a tombstone.
RECORD_VALUES = ("offset_commit", "group_metadata", "value")
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1


class OffsetCommitValue(Struct, frozen=True, gc=False):
    """A committed offset. Timestamps in ms; `expire_timestamp` -1: no explicit retention."""

    offset: Int64
    leader_epoch: Int32
    metadata: str
    commit_timestamp: Int64
    expire_timestamp: Int64 = NO_TIMESTAMP


class MemberMetadata(Struct, frozen=True):
    """One member, with its subscription for the selected protocol. Timeouts in ms."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: Int32
    session_timeout: Int32
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(Struct, frozen=True):
    """A group as of its last stored generation. Timestamps in ms."""

    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: Int64
    members: tuple[MemberMetadata, ...]


class CoordinatorRecord(Struct, frozen=True, omit_defaults=True, gc=False):
    """One row of the offsets topic; `log_offset` is null until the record is appended.

    `key` and `value` are Kafka's bytes, for records of unknown kinds only.
    """

    partition: Int32
    record_type: str
    group_id: str
    timestamp: Timestamp
    log_offset: Int64 | None = None
    topic: str | None = None
    topic_partition: Int32 | None = None
    offset_commit: OffsetCommitValue | None = None
    group_metadata: GroupMetadataValue | None = None
    reason: str | None = None
    request_id: str | None = None
    key: bytes | None = None
    value: bytes | None = None

    @property
    def is_tombstone(self) -> bool:
        """Whether the record deletes its key."""
        return all(getattr(self, name) is None for name in RECORD_VALUES)


class GroupEvent(Struct, frozen=True, omit_defaults=True):
    """One change of a group: a row of the audit log `group_events`."""

    at: Timestamp
    group_id: str
    event: str
    from_state: str | None = None
    to_state: str | None = None
    generation: Int32 | None = None
    member_id: str | None = None
    group_instance_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    reason: str | None = None
    request_id: str | None = None


class CoordinatorEvent(Struct, frozen=True, omit_defaults=True):
    """One decision about a node or a partition's owner: a row of the `coordinators` table.

    `event` is a constant of `coordinator.ownership`. Rows of one decision share an `epoch`, which
    rises with every decision. `partition` is null if the event concerns the whole node.
    """

    at: Timestamp
    epoch: Int64
    event: str
    node_id: Int32
    partition: Int32 | None = None
    host: str | None = None
    port: Int32 | None = None
    to_node: Int32 | None = None
    reason: str | None = None


def binary_size(record: CoordinatorRecord) -> int:
    """Return the size in bytes of key and value in Kafka's binary form (key v1/v2, value v3)."""
    group = 2 + len(record.group_id.encode())
    if record.record_type == OFFSET_COMMIT:
        key = 2 + group + 2 + len((record.topic or "").encode()) + 4
        offset = record.offset_commit
        if offset is None:
            return key
        return key + 2 + 8 + 4 + 2 + len(offset.metadata.encode()) + 8
    key = 2 + group
    value = record.group_metadata
    if value is None:
        return key
    head = 2 + _string(value.protocol_type) + 4 + _string(value.protocol) + _string(value.leader)
    return key + head + 8 + 4 + sum(_member_size(member) for member in value.members)


def _string(text: str | None) -> int:
    return 2 if text is None else 2 + len(text.encode())


def _member_size(member: MemberMetadata) -> int:
    strings = (member.member_id, member.group_instance_id, member.client_id, member.client_host)
    blobs = 8 + len(member.subscription) + len(member.assignment)
    return sum(_string(text) for text in strings) + 8 + blobs
