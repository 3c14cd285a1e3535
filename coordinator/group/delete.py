"""DeleteGroups (KIP-229), and how a group dies.

Source: Apache Kafka, GroupCoordinatorShard.deleteGroups, GroupMetadataManager.validateDeleteGroup.
"""

from __future__ import annotations

from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.coordinator.group.turn import Turn
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    RequestEvent,
)

_EMPTY = DeleteGroupsResponse()


def delete_groups(turn: Turn, event: RequestEvent, body: DeleteGroupsRequest) -> None:
    """Delete an Empty group with all its offsets."""
    if body.force:
        turn.answer(event, ErrorCode.INVALID_REQUEST, _EMPTY, "force is not supported")
    elif turn.group is None or turn.group.state is GroupState.DEAD:
        turn.answer(event, ErrorCode.GROUP_ID_NOT_FOUND, _EMPTY)
    elif turn.group.state is not GroupState.EMPTY:
        turn.answer(event, ErrorCode.NON_EMPTY_GROUP, _EMPTY)
    else:
        turn.answer(event, bury(turn, "group deleted by request"), _EMPTY)


def bury(turn: Turn, reason: str) -> ErrorCode:
    """Delete an Empty group with all its offsets; it stays if the log does not take the tombstones.

    The group's tombstone is written exactly if the log holds a record of the group. (Kafka's Java
    coordinator writes it always, the Scala one from generation 1 on.)
    """
    group = turn.present
    tombstones = [
        turn.offset_record(topic, partition, None, reason)
        for topic, partitions in group.offsets.items()
        for partition in partitions
    ]
    if group.recorded:
        tombstones.append(turn.group_record(None, reason))
    if tombstones:
        error = turn.append(*tombstones)
        if error is not ErrorCode.NONE:
            return error
    turn.transition(GroupState.DEAD, reason)
    turn.note("group_deleted", reason)
    turn.group = None
    return ErrorCode.NONE
