"""The Structs that messages are read into and written from.

A message, or a struct within one, has the Struct of the project that `STRUCTS` names, or else one
that is made of its schema: its fields, each with Kafka's default, and its structs as attributes.
Whatever has the attributes can be written.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from group_coordinator.schemas import messages, records
from group_coordinator.schemas.kafka.schema import Field, schema, underscored

# The project's Struct of a message, or of a struct within one: by the message's name, and the
# struct's after a dot. The fields that such a Struct does not have are passed over.
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
# The fields that have another name here, by the message and Kafka's name.
_RENAMED = {
    "OffsetCommitRequest.GenerationIdOrMemberEpoch": "generation_id",
    "DescribeGroupsResponse.MemberMetadata": "metadata",
    "DescribeGroupsResponse.MemberAssignment": "assignment",
}


class GroupRequest(Struct, gc=False):
    """A request of a group: what the coordinator is asked."""

    group_id: str
    body: Any


def attribute(message: str, field: Field) -> str:
    """Return the name of a field in the Structs of a message."""
    return _RENAMED.get(f"{message}.{field.name}") or underscored(field.name)


@cache
def struct(name: str) -> Any:
    """Return the Struct of the message `name`."""
    found = schema(name)
    return _struct(name, name, found.fields)


def struct_within(message: str, field: Field) -> Any:
    """Return the Struct of a message's field that is a struct, or a list of them."""
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
