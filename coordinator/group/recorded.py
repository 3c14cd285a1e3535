"""Answers to requests that already have records in the log.

A coordinator appends a request's records, which carry its id, then its answer, and may be killed
between the two. The next coordinator loads the group from the records. Deciding the request again
would record it twice: an offset would step back, or a group that the request deleted would not be
found. So the next coordinator answers it from its records, whatever the group's state is now, and
appends nothing.

Two answers cannot be derived from the records. If a LeaveGroup removed the last member, each other
member that it names is answered NONE, even if the group never had it. A partition without a record,
which the current catalogue, ACLs and settings do not refuse, is answered COORDINATOR_NOT_AVAILABLE,
so that the client retries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from group_coordinator.coordinator.authorization import READ
from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.decision import Decision, shape_sync
from group_coordinator.coordinator.group.join import JoinCall, answer_replacement, replaced_id
from group_coordinator.coordinator.group.leave import answer_leave
from group_coordinator.coordinator.group.offset_commit import (
    answer_commit,
    is_known_partition,
    is_too_long,
)
from group_coordinator.coordinator.group.record_helpers import replay
from group_coordinator.schemas.apis import version_of
from group_coordinator.schemas.errors import NONE, ErrorCode
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

_RETRY = ErrorCode.COORDINATOR_NOT_AVAILABLE


def answer_recorded(
    decision: Decision, event: RequestEvent, records: Sequence[CoordinatorRecord]
) -> bool:
    """Answer a request from the records that carry its id; return False if it must be decided.

    It must be decided if the records are not the result of its decision: a join that creates a
    group appends the group's first record and is then parked. If that group was deleted since, it
    is created here without another record.
    """
    answer = _ANSWERS.get(event.api)
    request = _RecordedRequest(decision, event, records)
    if answer is not None and answer(request, getattr(event, event.api)):
        return True
    if event.api == "join_group" and decision.group is None:
        decision.group = ClassicGroup(decision.group_id, state_timestamp=decision.now)
    return False


class _RecordedRequest(Struct, eq=False):
    """A request with records in the log.

    The method that is named after an API answers its request, or returns False if the records are
    not the result of a decision.
    """

    decision: Decision
    event: RequestEvent
    records: Sequence[CoordinatorRecord]

    def offset_commit(self, body: OffsetCommitRequest) -> bool:
        taken = {
            (record.topic, record.topic_partition, record.offset_commit.offset)
            for record in self.records
            if record.offset_commit is not None
        }
        codes = [
            NONE
            if (topic.name, partition.partition_index, partition.committed_offset) in taken
            else self._code_of_commit(topic.name, partition)
            for topic in body.topics
            for partition in topic.partitions
        ]
        if NONE not in codes:
            return False
        answer_commit(self.decision, self.event, body, codes)
        return True

    def _code_of_commit(self, topic: str, partition: OffsetCommitPartition) -> ErrorCode:
        code = self._code_of_partition(topic, partition.partition_index)
        if code is not NONE:
            return code
        if is_too_long(
            partition.committed_metadata, self.decision.config.offset_metadata_max_bytes
        ):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return _RETRY

    def _code_of_partition(self, topic: str, partition: int) -> ErrorCode:
        """Return the code that refuses a partition regardless of the group, NONE if none does."""
        if not self.decision.allows(self.event, READ, topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not is_known_partition(self.decision.topics, topic, partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return NONE

    def offset_delete(self, body: OffsetDeleteRequest) -> bool:
        deleted = {
            (record.topic, record.topic_partition)
            for record in self.records
            if record.offset_commit is None
        }
        requested = {(topic.name, index) for topic in body.topics for index in topic.partitions}
        if deleted.isdisjoint(requested):
            return False
        topics = []
        for topic in body.topics:
            codes = [
                NONE
                if (topic.name, index) in deleted
                else self._code_of_deletion(topic.name, index)
                for index in topic.partitions
            ]
            results = map(PartitionResult, topic.partitions, map(int, codes))
            topics.append(TopicResult(topic.name, tuple(results)))
        self.decision.answer(self.event, NONE, OffsetDeleteResponse(tuple(topics)))
        return True

    def _code_of_deletion(self, topic: str, partition: int) -> ErrorCode:
        code = self._code_of_partition(topic, partition)
        group = self.decision.group
        if code is not NONE or group is None:
            return code
        if group.is_subscribed(topic):
            return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        return _RETRY if partition in group.offsets.get(topic) else NONE

    def delete_groups(self, _body: DeleteGroupsRequest) -> bool:
        if any(
            record.offset_commit is None and record.group_metadata is None
            for record in self.records
        ):
            self.decision.answer(self.event, NONE, DeleteGroupsResponse())
            return True
        return False

    def leave_group(self, body: LeaveGroupRequest) -> bool:
        """Answer NONE for each member if a record has no members: then all of them have left."""
        if any(
            each.group_metadata is not None and not each.group_metadata.members
            for each in self.records
        ):
            answer_leave(self.decision, self.event, body, [NONE] * len(body.members))
            return True
        return False

    def sync_group(self, body: SyncGroupRequest) -> bool:
        for record in self.records:
            group = replay(self.decision.group_id, [record])
            member = None if group is None else group.members.get(body.member_id)
            if group is None or member is None or group.generation_id != body.generation_id:
                continue
            version = version_of(self.event)
            answer = SyncGroupResponse(group.protocol_type, group.protocol_name, member.assignment)
            self.decision.answer(self.event, NONE, shape_sync(answer, version))
            return True
        return False

    def join_group(self, body: JoinGroupRequest) -> bool:
        """Answer a static member that rejoined a Stable group: a record has its new member id."""
        instance_id = body.group_instance_id
        for record in self.records:
            group = replay(self.decision.group_id, [record])
            new_id = None if group is None else group.static_members.get(instance_id or "")
            old_id = None if new_id is None else replaced_id(record, new_id)
            if group is None or new_id is None or old_id is None:
                continue
            leader_before = old_id if group.leader_id == new_id else group.leader_id
            call = JoinCall(self.decision, self.event, body)
            answer_replacement(call, group, group.members[new_id], leader_before)
            return True
        return False


# The APIs with requests that append enough records to derive the answer.
_ANSWERS: dict[str, Callable[[_RecordedRequest, Any], bool]] = {
    "join_group": _RecordedRequest.join_group,
    "sync_group": _RecordedRequest.sync_group,
    "leave_group": _RecordedRequest.leave_group,
    "offset_commit": _RecordedRequest.offset_commit,
    "offset_delete": _RecordedRequest.offset_delete,
    "delete_groups": _RecordedRequest.delete_groups,
}
