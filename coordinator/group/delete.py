"""DeleteGroups (KIP-229), and how a group dies.

Source: Apache Kafka, GroupCoordinatorShard.deleteGroups, GroupMetadataManager.validateDeleteGroup.
"""

from __future__ import annotations

from coordinator.group.state import GroupState
from coordinator.group.step import Turn
from schemas.errors import ErrorCode
from schemas.messages import DeleteGroupsRequest, DeleteGroupsResponse, RequestEvent

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
        _bury_offsets(turn, "group deleted by request")
        bury(turn, "group deleted by request")
        turn.answer(event, ErrorCode.NONE, _EMPTY)


def _bury_offsets(turn: Turn, reason: str) -> None:
    group = turn.present
    turn.append(
        *(
            turn.offset_record(topic, partition, None, reason)
            for topic, partitions in group.offsets.items()
            for partition in partitions
        )
    )
    group.offsets.clear()


def bury(turn: Turn, reason: str) -> None:
    """Let an Empty group without offsets die, with a tombstone if the log has a record of it.

    Kafka writes the group's tombstone always (Java) or from generation 1 on (Scala); what must be
    buried is exactly what was recorded.
    """
    group = turn.present
    if group.recorded:
        turn.append(turn.group_record(None, reason))
    turn.transition(GroupState.DEAD, reason)
    turn.note("group_deleted", reason)
    turn.group = None
