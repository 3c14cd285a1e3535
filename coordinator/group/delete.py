"""DeleteGroups (KIP-229), and the deletion of a group with its tombstones.

Source: Apache Kafka, GroupCoordinatorShard.deleteGroups, GroupMetadataManager.validateDeleteGroup.
"""

from __future__ import annotations

from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.state import DEAD, EMPTY
from group_coordinator.schemas.errors import NONE, ErrorCode
from group_coordinator.schemas.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    RequestEvent,
)

_EMPTY = DeleteGroupsResponse()


def delete_groups(decision: Decision, event: RequestEvent, body: DeleteGroupsRequest) -> None:
    """Delete an Empty group with all its offsets."""
    if body.force:
        decision.answer(event, ErrorCode.INVALID_REQUEST, _EMPTY, "force is not supported")
    elif decision.group is None or decision.group.state is DEAD:
        decision.answer(event, ErrorCode.GROUP_ID_NOT_FOUND, _EMPTY)
    elif decision.group.state is not EMPTY:
        decision.answer(event, ErrorCode.NON_EMPTY_GROUP, _EMPTY)
    else:
        decision.answer(event, delete_group(decision, "group deleted by request"), _EMPTY)


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
