"""Kafka's binary keys and values of `__consumer_offsets`.

The codec writes OffsetCommitKey 1, GroupMetadataKey 2, OffsetCommitValue 3 (1 with an expire
timestamp) and GroupMetadataValue 3. Kafka 4.1 writes the same versions, except OffsetCommitValue 4,
which adds the topic id as a tagged field; it also reads version 3.

The codec reads every version that a release of Kafka wrote or announced: OffsetCommitKey 0-1,
GroupMetadataKey 2, OffsetCommitValue 0-4, GroupMetadataValue 0-4. Records of Kafka's new consumer
groups (KIP-848) are recognised by their keys and kept as bytes.
"""

from __future__ import annotations

from struct import Struct as Packed
from typing import Any

import msgspec
from msgspec import Struct

from group_coordinator.schemas.kafka.reading import InvalidMessage, reader
from group_coordinator.schemas.kafka.schema import schema
from group_coordinator.schemas.kafka.structs import struct
from group_coordinator.schemas.kafka.writing import NotEncodable, writer
from group_coordinator.schemas.messages import Int32, Timestamp
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    NO_TIMESTAMP,
    OFFSET_COMMIT,
    RECORD_VALUES,
    CoordinatorRecord,
    GroupMetadataValue,
    OffsetCommitValue,
)

OFFSET_COMMIT_KEY_VERSION = 1
GROUP_METADATA_KEY_VERSION = 2
OFFSET_COMMIT_VALUE_VERSION = 3
# The only version with an expire timestamp: Kafka still writes it if a client sets a retention.
EXPIRING_OFFSET_COMMIT_VALUE_VERSION = 1
GROUP_METADATA_VALUE_VERSION = 3

# The record kinds of Kafka's new consumer groups, by the versions of their keys. Each key begins
# with the group id. Source: the `ConsumerGroup...Key.json` of Kafka's group coordinator.
CONSUMER_GROUP_KINDS = {
    3: "consumer_group_metadata",
    4: "consumer_group_partition_metadata",
    5: "consumer_group_member_metadata",
    6: "consumer_group_target_assignment_metadata",
    7: "consumer_group_target_assignment_member",
    8: "consumer_group_current_member_assignment",
    16: "consumer_group_regular_expression",
}

_VERSION = Packed(">h")
_KEY_OF_OFFSET, _KEY_OF_GROUP = "OffsetCommitKey", "GroupMetadataKey"
_OFFSET, _GROUP = "OffsetCommitValue", "GroupMetadataValue"


class Decoded(Struct, frozen=True):
    """A decoded key and value; in a tombstone all of `RECORD_VALUES` are null.

    `key` and `value` are null, except for a record of `CONSUMER_GROUP_KINDS`: then they are its
    bytes.
    """

    record_type: str
    group_id: str
    topic: str | None = None
    topic_partition: Int32 | None = None
    offset_commit: OffsetCommitValue | None = None
    group_metadata: GroupMetadataValue | None = None
    key: bytes | None = None
    value: bytes | None = None

    @property
    def is_tombstone(self) -> bool:
        """Whether the record deletes its key."""
        return all(getattr(self, name) is None for name in RECORD_VALUES)

    def record(self, partition: int, timestamp: Timestamp, reason: str) -> CoordinatorRecord:
        """Return the record as a row of the offsets topic, not yet appended; `timestamp` in ms."""
        fields = msgspec.structs.asdict(self)
        return CoordinatorRecord(partition=partition, timestamp=timestamp, reason=reason, **fields)


class UnknownKey(Struct, frozen=True):
    """A key of an unknown kind, such as a share group's; readers skip it."""

    version: int

    @property
    def reason(self) -> str:
        """Why the record is skipped, for users."""
        return f"unknown key version {self.version}"


class Corrupt(Struct, frozen=True):
    """Bytes that cannot be decoded, with the reason."""

    reason: str


# --- writing ------------------------------------------------------------------------------------


def encode_key(record: CoordinatorRecord) -> bytes:
    """Encode the record's key. Raises NotEncodable."""
    if record.record_type == OFFSET_COMMIT:
        if record.topic is None or record.topic_partition is None:
            raise NotEncodable("an offset_commit record without its topic or topic_partition")
        key = struct(_KEY_OF_OFFSET)(record.group_id, record.topic, record.topic_partition)
        return _encode(_KEY_OF_OFFSET, OFFSET_COMMIT_KEY_VERSION, key)
    if record.record_type == GROUP_METADATA:
        key = struct(_KEY_OF_GROUP)(record.group_id)
        return _encode(_KEY_OF_GROUP, GROUP_METADATA_KEY_VERSION, key)
    raise NotEncodable(f"unknown record type {record.record_type!r}")


def encode_value(record: CoordinatorRecord) -> bytes | None:
    """Encode the record's value; return None for a tombstone. Raises NotEncodable.

    The version with an expire timestamp has no leader epoch, so the epoch is dropped, as in Kafka.
    """
    offset, group = record.offset_commit, record.group_metadata
    if (group if record.record_type == OFFSET_COMMIT else offset) is not None:
        raise NotEncodable(f"a {record.record_type} record with a value of another type")
    if offset is not None:
        expires = offset.expire_timestamp != NO_TIMESTAMP
        version = EXPIRING_OFFSET_COMMIT_VALUE_VERSION if expires else OFFSET_COMMIT_VALUE_VERSION
        return _encode(_OFFSET, version, offset)
    if group is not None:
        return _encode(_GROUP, GROUP_METADATA_VALUE_VERSION, group)
    return None


def _encode(name: str, version: int, fields: Struct) -> bytes:
    return _VERSION.pack(version) + writer(name, version)(fields)


# --- reading ------------------------------------------------------------------------------------


def decode(key: bytes | None, value: bytes | None) -> Decoded | UnknownKey | Corrupt:
    """Decode a record; never raise an error. A value of None is a tombstone.

    An unknown value version and bytes that do not match the schema give `Corrupt`; Kafka's reader
    fails there. Unknown tagged fields are ignored; bytes after the last field are an error.
    """
    if key is None:
        return Corrupt("no key")
    try:
        return _decode(key, value)
    except InvalidMessage as error:
        return Corrupt(str(error))


def _decode(key: bytes, value: bytes | None) -> Decoded | UnknownKey:
    version = _version("key", key)
    if version in (0, OFFSET_COMMIT_KEY_VERSION):
        at = _read(_KEY_OF_OFFSET, version, key)
        offset = None if value is None else _read_value(_OFFSET, "offset", value)[1]
        return Decoded(OFFSET_COMMIT, at.group, at.topic, at.partition, offset_commit=offset)
    if version == GROUP_METADATA_KEY_VERSION:
        group_id = _read(_KEY_OF_GROUP, version, key).group
        group = None if value is None else _decode_group(value)
        return Decoded(GROUP_METADATA, group_id, group_metadata=group)
    if version in CONSUMER_GROUP_KINDS:
        # The fields after the group id are not decoded.
        group_id = reader(_KEY_OF_GROUP, GROUP_METADATA_KEY_VERSION)(key, _VERSION.size).group
        return Decoded(CONSUMER_GROUP_KINDS[version], group_id, key=key, value=value)
    return UnknownKey(version)


def _decode_group(value: bytes) -> GroupMetadataValue:
    group: GroupMetadataValue
    version, group = _read_value(_GROUP, "group metadata", value)
    if version > 0:
        return group
    members = tuple(
        msgspec.structs.replace(member, rebalance_timeout=member.session_timeout)
        for member in group.members
    )
    return msgspec.structs.replace(group, members=members)


def _version(what: str, data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise InvalidMessage(f"a {what} of {len(data)} bytes, too short for its version")
    (version,) = _VERSION.unpack_from(data)
    return int(version)


def _read_value(name: str, what: str, value: bytes) -> tuple[int, Any]:
    version = _version("value", value)
    if not schema(name).is_valid(version):
        raise InvalidMessage(f"Unknown {what} message version: {version}")
    return version, _read(name, version, value)


def _read(name: str, version: int, data: bytes) -> Any:
    return reader(name, version, strict=True)(data, _VERSION.size)
