"""The answer to a request whose records stand already.

A coordinator appends a request's records, then its answer, and may be killed between the two. The
request was decided: its records, which carry its id, are in the log, and the group that its next
coordinator loads has what they say. To decide the request again would record it twice: an offset
would step back, and a group that the request deleted would not be found. So the next coordinator
answers such a request by its records, whatever the group is by now, and appends nothing.

Two answers cannot be told from the records. A member that a LeaveGroup names beside the last member
is answered NONE, also if the group never had it. A partition that has no record, and that the
present catalogue, ACLs and settings do not refuse, is answered COORDINATOR_NOT_AVAILABLE, so that
its client asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from group_coordinator.coordinator.authorization import READ
from group_coordinator.coordinator.group.group import Group
from group_coordinator.coordinator.group.join import JoinCall, answer_replacement, replaced_id
from group_coordinator.coordinator.group.leave import answer_leave
from group_coordinator.coordinator.group.log import replay
from group_coordinator.coordinator.group.offset_commit import (
    answer_commit,
    is_known_partition,
    is_too_long,
)
from group_coordinator.coordinator.group.turn import Turn, shape_sync
from group_coordinator.schemas.apis import version_of
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    PartitionResult,
    RequestEvent,
    SyncGroupRequest,
    SyncGroupResponse,
    TopicResult,
)
from group_coordinator.schemas.records import CoordinatorRecord

_AGAIN = ErrorCode.COORDINATOR_NOT_AVAILABLE


def answer_recorded(turn: Turn, event: RequestEvent, records: Sequence[CoordinatorRecord]) -> bool:
    """Answer a request by the records that carry its id; False if it is yet to be decided.

    It is yet to be decided if the records are not those of its decision. The record of a group that
    a join has made is none: the join went on waiting. If that group was deleted since, the group is
    made here without another record.
    """
    answer = _ANSWERS.get(event.api)
    if answer is not None and answer(turn, event, getattr(event, event.api), records):
        return True
    if event.api == "join_group" and turn.group is None:
        turn.group = Group(turn.group_id, state_timestamp=turn.now)
    return False


def _answer_commit(
    turn: Turn, event: RequestEvent, body: OffsetCommitRequest, records: Sequence[CoordinatorRecord]
) -> bool:
    taken = {
        (record.topic, record.topic_partition, record.offset_commit.offset)
        for record in records
        if record.offset_commit is not None
    }
    codes = [
        ErrorCode.NONE
        if (topic.name, partition.partition_index, partition.committed_offset) in taken
        else _code_of_commit(turn, event, topic.name, partition)
        for topic in body.topics
        for partition in topic.partitions
    ]
    if ErrorCode.NONE not in codes:
        return False
    answer_commit(turn, event, body, codes)
    return True


def _code_of_commit(
    turn: Turn, event: RequestEvent, topic: str, partition: OffsetCommitPartition
) -> ErrorCode:
    code = _code_of_partition(turn, event, topic, partition.partition_index)
    if code is not ErrorCode.NONE:
        return code
    if is_too_long(partition.committed_metadata, turn.config.offset_metadata_max_bytes):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return _AGAIN


def _code_of_partition(turn: Turn, event: RequestEvent, topic: str, partition: int) -> ErrorCode:
    """Why a partition is refused whatever the group; NONE if it is not."""
    if not turn.allows(event, READ, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not is_known_partition(turn.topics, topic, partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _answer_offset_delete(
    turn: Turn, event: RequestEvent, body: OffsetDeleteRequest, records: Sequence[CoordinatorRecord]
) -> bool:
    deleted = {
        (record.topic, record.topic_partition) for record in records if record.offset_commit is None
    }
    asked = {(topic.name, index) for topic in body.topics for index in topic.partitions}
    if deleted.isdisjoint(asked):
        return False
    topics = []
    for topic in body.topics:
        codes = [
            ErrorCode.NONE
            if (topic.name, index) in deleted
            else _code_of_deletion(turn, event, topic.name, index)
            for index in topic.partitions
        ]
        results = map(PartitionResult, topic.partitions, map(int, codes))
        topics.append(TopicResult(topic.name, tuple(results)))
    turn.answer(event, ErrorCode.NONE, OffsetDeleteResponse(tuple(topics)))
    return True


def _code_of_deletion(turn: Turn, event: RequestEvent, topic: str, partition: int) -> ErrorCode:
    code = _code_of_partition(turn, event, topic, partition)
    group = turn.group
    if code is not ErrorCode.NONE or group is None:
        return code
    if group.is_subscribed(topic):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return _AGAIN if partition in group.offsets.get(topic) else ErrorCode.NONE


def _answer_delete_groups(
    turn: Turn,
    event: RequestEvent,
    _body: DeleteGroupsRequest,
    records: Sequence[CoordinatorRecord],
) -> bool:
    if any(each.offset_commit is None and each.group_metadata is None for each in records):
        turn.answer(event, ErrorCode.NONE, DeleteGroupsResponse())
        return True
    return False


def _answer_leave(
    turn: Turn, event: RequestEvent, body: LeaveGroupRequest, records: Sequence[CoordinatorRecord]
) -> bool:
    """The record says that nobody is left in the group, so that each member named has left."""
    if any(each.group_metadata is not None and not each.group_metadata.members for each in records):
        answer_leave(turn, event, body, [ErrorCode.NONE] * len(body.members))
        return True
    return False


def _answer_sync(
    turn: Turn, event: RequestEvent, body: SyncGroupRequest, records: Sequence[CoordinatorRecord]
) -> bool:
    for record in records:
        group = replay(turn.group_id, [record])
        member = None if group is None else group.members.get(body.member_id)
        if group is None or member is None or group.generation_id != body.generation_id:
            continue
        version = version_of(event)
        answer = SyncGroupResponse(group.protocol_type, group.protocol_name, member.assignment)
        turn.answer(event, ErrorCode.NONE, shape_sync(answer, version))
        return True
    return False


def _answer_join(
    turn: Turn, event: RequestEvent, body: JoinGroupRequest, records: Sequence[CoordinatorRecord]
) -> bool:
    """A static member that came back to a Stable group has a record of its new id."""
    instance_id = body.group_instance_id
    for record in records:
        group = replay(turn.group_id, [record])
        new_id = None if group is None else group.static_members.get(instance_id or "")
        old_id = None if new_id is None else replaced_id(record, new_id)
        if group is None or new_id is None or old_id is None:
            continue
        leader_before = old_id if group.leader_id == new_id else group.leader_id
        call = JoinCall(turn, event, body)
        answer_replacement(call, group, group.members[new_id], leader_before)
        return True
    return False


# The APIs whose requests append records that their answer can be told from.
_ANSWERS: dict[str, Callable[[Turn, RequestEvent, Any, Sequence[CoordinatorRecord]], bool]] = {
    "join_group": _answer_join,
    "sync_group": _answer_sync,
    "leave_group": _answer_leave,
    "offset_commit": _answer_commit,
    "offset_delete": _answer_offset_delete,
    "delete_groups": _answer_delete_groups,
}
