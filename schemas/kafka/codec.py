"""Kafka's binary keys and values of `__consumer_offsets`, over kafka-python's protocol layer.

The codec writes the versions that Kafka 4.1 writes, and reads every version that a release wrote or
announced: OffsetCommitKey 0-1, GroupMetadataKey 2, OffsetCommitValue 0-4, GroupMetadataValue 0-4.
"""

from __future__ import annotations

import struct
import types
from io import BytesIO
from typing import Any, TypeVar

import msgspec
from kafka.protocol.api_data import ApiData
from msgspec import Struct

from group_coordinator.schemas.messages import Int32, Timestamp
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    NO_TIMESTAMP,
    OFFSET_COMMIT,
    GroupMetadataValue,
    OffsetCommitValue,
    Record,
)

OFFSET_COMMIT_KEY_VERSION = 1
GROUP_METADATA_KEY_VERSION = 2
OFFSET_COMMIT_VALUE_VERSION = 3
# The only version with an expire timestamp: Kafka still writes it for an explicit retention.
EXPIRING_OFFSET_COMMIT_VALUE_VERSION = 1
GROUP_METADATA_VALUE_VERSION = 3

_VERSION = struct.Struct(">h")
# What kafka-python raises, unwrapped, for bytes, text or numbers that do not fit a field.
_MISFITS = (struct.error, ValueError, msgspec.ValidationError)

T = TypeVar("T")


class NotEncodable(ValueError):
    """A record that Kafka's format cannot hold; the message says why."""


class Decoded(Struct, frozen=True):
    """A key and its value. Both `offset_commit` and `group_metadata` are null in a tombstone."""

    record_type: str
    group_id: str
    topic: str | None = None
    topic_partition: Int32 | None = None
    offset_commit: OffsetCommitValue | None = None
    group_metadata: GroupMetadataValue | None = None

    @property
    def is_tombstone(self) -> bool:
        """Whether it deletes its key."""
        return self.offset_commit is None and self.group_metadata is None

    def record(self, partition: int, timestamp: Timestamp, reason: str) -> Record:
        """Return a row of the offsets topic, not appended yet. `timestamp` in ms."""
        return Record(
            partition=partition,
            record_type=self.record_type,
            group_id=self.group_id,
            timestamp=timestamp,
            topic=self.topic,
            topic_partition=self.topic_partition,
            offset_commit=self.offset_commit,
            group_metadata=self.group_metadata,
            reason=reason,
        )


class UnknownKey(Struct, frozen=True):
    """A key of a kind that classic groups do not have, such as KIP-848's; readers skip it."""

    version: int

    @property
    def reason(self) -> str:
        """The version, as text for people."""
        return f"unknown key version {self.version}"


class Corrupt(Struct, frozen=True):
    """Bytes that cannot be read; `reason` says what is wrong with them."""

    reason: str


# --- the messages -------------------------------------------------------------------------------


class _OffsetCommitKey(Struct):
    group: str
    topic: str
    partition: Int32


class _GroupMetadataKey(Struct):
    group: str


def _message(name: str) -> Any:
    """Make the message class of this package's `<name>.json`."""
    return types.new_class(name, (ApiData,), {"load_json": __package__})


_KEY_OF_OFFSET = _message("OffsetCommitKey")
_KEY_OF_GROUP = _message("GroupMetadataKey")
_OFFSET = _message("OffsetCommitValue")
_GROUP = _message("GroupMetadataValue")


# --- writing ------------------------------------------------------------------------------------


def encode_key(record: Record) -> bytes:
    """Return the record's key. Raises NotEncodable."""
    if record.record_type == OFFSET_COMMIT:
        if record.topic is None or record.topic_partition is None:
            raise NotEncodable("an offset_commit record without its topic or topic_partition")
        key = _KEY_OF_OFFSET(
            group=record.group_id, topic=record.topic, partition=record.topic_partition
        )
        return _encode(key, OFFSET_COMMIT_KEY_VERSION)
    if record.record_type == GROUP_METADATA:
        return _encode(_KEY_OF_GROUP(group=record.group_id), GROUP_METADATA_KEY_VERSION)
    raise NotEncodable(f"unknown record type {record.record_type!r}")


def encode_value(record: Record) -> bytes | None:
    """Return the record's value, None for a tombstone. Raises NotEncodable.

    A value with an expire timestamp has no room for the leader epoch, which is left out as Kafka
    leaves it out.
    """
    offset, group = record.offset_commit, record.group_metadata
    if (group if record.record_type == OFFSET_COMMIT else offset) is not None:
        raise NotEncodable(f"a {record.record_type} record with a value of another type")
    if offset is not None:
        expires = offset.expire_timestamp != NO_TIMESTAMP
        return _encode(
            _OFFSET(**msgspec.structs.asdict(offset)),
            EXPIRING_OFFSET_COMMIT_VALUE_VERSION if expires else OFFSET_COMMIT_VALUE_VERSION,
        )
    if group is not None:
        fields = msgspec.structs.asdict(group)
        return _encode(_GROUP(**fields), GROUP_METADATA_VALUE_VERSION)
    return None


def _encode(message: Any, version: int) -> bytes:
    try:
        encoded: bytes = message.encode(version=version)
    except _MISFITS as error:
        raise NotEncodable(f"no {message.name} can hold this: {error}") from error
    return encoded


# --- reading ------------------------------------------------------------------------------------


def decode(key: bytes | None, value: bytes | None) -> Decoded | UnknownKey | Corrupt:
    """Read a record; raises nothing. A value of None is a tombstone.

    Kafka's own reader stops at an unknown value version or at bytes that do not fit, which is
    `Corrupt` here. Unknown tagged fields are ignored, bytes after the last field are not.
    """
    try:
        return _decode(key, value)
    except _Unreadable as error:
        return Corrupt(str(error))


class _Unreadable(Exception):
    pass


def _decode(key: bytes | None, value: bytes | None) -> Decoded | UnknownKey:
    version, body = _split("key", key)
    if version in (0, OFFSET_COMMIT_KEY_VERSION):
        at = _read(_KEY_OF_OFFSET, version, body, _OffsetCommitKey)
        offset = None if value is None else _decode_offset(value)
        return Decoded(OFFSET_COMMIT, at.group, at.topic, at.partition, offset_commit=offset)
    if version == GROUP_METADATA_KEY_VERSION:
        group_id = _read(_KEY_OF_GROUP, version, body, _GroupMetadataKey).group
        group = None if value is None else _decode_group(value)
        return Decoded(GROUP_METADATA, group_id, group_metadata=group)
    return UnknownKey(version)


def _decode_offset(value: bytes) -> OffsetCommitValue:
    version, body = _split("value", value)
    _check(_OFFSET, version, "offset")
    return _read(_OFFSET, version, body, OffsetCommitValue)


def _decode_group(value: bytes) -> GroupMetadataValue:
    version, body = _split("value", value)
    _check(_GROUP, version, "group metadata")
    group = _read(_GROUP, version, body, GroupMetadataValue)
    if version > 0:
        return group
    members = tuple(
        msgspec.structs.replace(member, rebalance_timeout=member.session_timeout)
        for member in group.members
    )
    return msgspec.structs.replace(group, members=members)


def _split(what: str, data: bytes | None) -> tuple[int, bytes]:
    """Take the version off; raises _Unreadable."""
    if data is None:
        raise _Unreadable(f"no {what}")
    if len(data) < _VERSION.size:
        raise _Unreadable(f"a {what} of {len(data)} bytes, too short for its version")
    (version,) = _VERSION.unpack_from(data)
    return version, data[_VERSION.size :]


def _check(message: Any, version: int, what: str) -> None:
    # kafka-python would read a version that it does not know as the newest that it does.
    oldest, newest = message.valid_versions
    if not oldest <= version <= newest:
        raise _Unreadable(f"Unknown {what} message version: {version}")


def _read(message: Any, version: int, body: bytes, as_type: type[T]) -> T:
    """Read a message's fields into `as_type`; raises _Unreadable.

    kafka-python accepts a truncated tagged field as complete, and an array's length below -1 as
    null. Two checks find such bytes: one byte is appended and must stay unread, and in a version
    that is not flexible, where a value has one encoding only, the fields must encode to `body`.
    """
    stream = BytesIO(body + b"\0")
    try:
        read = message.decode(stream, version=version, header=False)
        fields = msgspec.convert(read, as_type, from_attributes=True)
    except _MISFITS as error:
        raise _Unreadable(f"not {message.name} version {version}: {error}") from error
    left = len(body) - stream.tell()
    if left < 0:
        raise _Unreadable(f"not {message.name} version {version}: cut short")
    if left > 0:
        raise _Unreadable(f"not {message.name} version {version}: {left} bytes too many")
    if not message.flexible_version_q(version) and read.encode(header=False) != body:
        raise _Unreadable(f"not {message.name} version {version}: a length that cannot be")
    return fields
