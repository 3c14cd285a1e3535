"""The Structs that messages are decoded into and encoded from.

A message, or a struct inside it, uses the project's Struct in `STRUCTS`, or if there is none, a
Struct generated from its schema: fields with Kafka's defaults, and the Structs inside it as class
attributes. A writer accepts any object with these attributes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from group_coordinator.schemas import messages, records
from group_coordinator.schemas.kafka.schema import Field, schema, underscored

# The project's Struct for a message, or for a struct inside it: the key is the message's name, with
# the struct's name after a dot. Fields that the project's Struct lacks are skipped.
STRUCTS: dict[str, type[Struct]] = {
    "HeartbeatRequest": messages.HeartbeatRequest,
    "JoinGroupRequest": messages.JoinGroupRequest,
    "JoinGroupRequest.JoinGroupRequestProtocol": messages.JoinGroupProtocol,
    "LeaveGroupRequest.MemberIdentity": messages.LeavingMember,
    "OffsetCommitRequest": messages.OffsetCommitRequest,
    "OffsetCommitRequest.OffsetCommitRequestTopic": messages.OffsetCommitTopic,
    "OffsetCommitRequest.OffsetCommitRequestPartition": messages.OffsetCommitPartition,
    "OffsetFetchRequest.OffsetFetchRequestTopic": messages.OffsetFetchTopic,
    "OffsetFetchRequest.OffsetFetchRequestTopics": messages.OffsetFetchTopic,
    "SyncGroupRequest": messages.SyncGroupRequest,
    "SyncGroupRequest.SyncGroupRequestAssignment": messages.SyncGroupAssignment,
    "OffsetCommitValue": records.OffsetCommitValue,
    "GroupMetadataValue": records.GroupMetadataValue,
    "GroupMetadataValue.MemberMetadata": records.MemberMetadata,
}
# Attribute names that differ from Kafka's field names, by message and field.
_RENAMED = {
    "OffsetCommitRequest.GenerationIdOrMemberEpoch": "generation_id",
    "DescribeGroupsResponse.MemberMetadata": "metadata",
    "DescribeGroupsResponse.MemberAssignment": "assignment",
}


class GroupRequest(Struct, gc=False):
    """A request to a group: the group id and the request's body."""

    group_id: str
    body: Any


def attribute(message: str, field: Field) -> str:
    """Return the attribute name of a field in the Structs of a message."""
    return _RENAMED.get(f"{message}.{field.name}") or underscored(field.name)


@cache
def struct(name: str) -> Any:
    """Return the Struct of the message `name`."""
    found = schema(name)
    return _struct(name, name, found.fields)


def struct_within(message: str, field: Field) -> Any:
    """Return the Struct of a field that is a struct or a list of structs."""
    return _struct_within(message, field.item_type, field.fields)


@cache
def _struct_within(message: str, name: str, fields: tuple[Field, ...]) -> Any:
    return _struct(message, f"{message}.{name}", fields)


def _struct(message: str, path: str, fields: tuple[Field, ...]) -> Any:
    if path in STRUCTS:
        return STRUCTS[path]
    own = [(attribute(message, each), Any, each.default_value()) for each in fields]
    within = {each.item_type: struct_within(message, each) for each in fields if each.fields}
    return msgspec.defstruct(path.rpartition(".")[2], own, namespace=within, gc=False)
