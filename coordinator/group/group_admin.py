"""DescribeGroups and DeleteGroups (KIP-229), and the deletion of a group with its tombstones.

Source: Apache Kafka, GroupCoordinatorShard.deleteGroups, GroupMetadataManager (describeGroups,
validateDeleteGroup).
"""

from __future__ import annotations

from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.state import DEAD, EMPTY, STABLE
from group_coordinator.schemas.apis import version_of
from group_coordinator.schemas.errors import NONE, ErrorCode
from group_coordinator.schemas.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    RequestEvent,
)

GROUP_ID_NOT_FOUND_VERSION = 6
_NO_FIELDS = DeleteGroupsResponse()


def describe_groups(decision: Decision, event: RequestEvent, _body: DescribeGroupsRequest) -> None:
    """Describe the group; a missing group is "Dead", with an error from version 6 on."""
    if decision.group is not None:
        decision.answer(event, NONE, _describe(decision.group))
        return
    dead = DescribeGroupsResponse(state=DEAD.value)
    version = version_of(event)
    if version >= GROUP_ID_NOT_FOUND_VERSION:
        message = f"Group {decision.group_id} not found."
        decision.answer(event, ErrorCode.GROUP_ID_NOT_FOUND, dead, message)
    else:
        decision.answer(event, NONE, dead)


def _describe(group: ClassicGroup) -> DescribeGroupsResponse:
    stable = group.state is STABLE
    return DescribeGroupsResponse(
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if stable else "",
        members=tuple(
            DescribedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol_name) if stable else b"",
                member.assignment,
            )
            for member in group.members.values()
        ),
    )


def delete_groups(decision: Decision, event: RequestEvent, body: DeleteGroupsRequest) -> None:
    """Delete an Empty group with all its offsets."""
    if body.force:
        decision.answer(event, ErrorCode.INVALID_REQUEST, _NO_FIELDS, "force is not supported")
    elif decision.group is None or decision.group.state is DEAD:
        decision.answer(event, ErrorCode.GROUP_ID_NOT_FOUND, _NO_FIELDS)
    elif decision.group.state is not EMPTY:
        decision.answer(event, ErrorCode.NON_EMPTY_GROUP, _NO_FIELDS)
    else:
        decision.answer(event, delete_group(decision, "group deleted by request"), _NO_FIELDS)


def delete_group(decision: Decision, reason: str) -> ErrorCode:
    """Delete an Empty group with all its offsets; keep it if the log refuses the tombstones.

    Its own tombstone is written only if the log holds a record of the group. (Kafka's Java
    coordinator always writes it, the Scala one from generation 1 on.)
    """
    group = decision.present
    tombstones = [
        decision.offset_record(topic, partition, None, reason)
        for topic, partitions in group.offsets.items()
        for partition in partitions
    ]
    if group.recorded:
        tombstones.append(decision.group_record(None, reason))
    if tombstones:
        error = decision.append(*tombstones)
        if error is not NONE:
            return error
    decision.transition(DEAD, reason)
    decision.note("group_deleted", reason)
    decision.group = None
    return NONE
