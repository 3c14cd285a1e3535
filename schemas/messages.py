"""Request events and responses: the public contract in code.

Field names are those of Kafka's protocol guide in snake_case, with the same meaning. `bytes` fields
are `binary` in the tables and base64 in JSON. A field typed `X | None` may be null; a field without
a default is required.

Messages are frozen trees, never part of a reference cycle. Types with thousands of instances per
batch have `gc=False`: otherwise the garbage collector would traverse them every few hundred
allocations.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

# The width of an integer on Kafka's wire. msgspec keeps `extra` with the type and does not use it:
# `schemas.tables` reads the column's width from there.
Int8 = Annotated[int, Meta(ge=-(2**7), le=2**7 - 1, extra={"width": 8})]
Int16 = Annotated[int, Meta(ge=-(2**15), le=2**15 - 1, extra={"width": 16})]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1, extra={"width": 32})]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, extra={"width": 64})]
# Milliseconds since 1970-01-01 UTC; a `timestamp` in the tables.
Timestamp = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, extra={"width": 64, "timestamp": True})]

NO_MEMBER_ID = ""
NO_GENERATION = -1


# --- requests -----------------------------------------------------------------------------------


class FindCoordinatorRequest(Struct, frozen=True):
    """FindCoordinator (API key 10). `key_type` 0 means a group."""

    key_type: Int8 | None = None


class JoinGroupProtocol(Struct, frozen=True):
    """One protocol (assignor) that a member offers, with its metadata for the leader."""

    name: str
    metadata: bytes


class JoinGroupRequest(Struct, frozen=True, kw_only=True):
    """JoinGroup (API key 11). Timeouts in ms. A null rebalance timeout is the session timeout."""

    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 | None = None
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    protocol_type: str
    protocols: tuple[JoinGroupProtocol, ...]
    reason: str | None = None


class SyncGroupAssignment(Struct, frozen=True):
    """The assignment that the leader computed for one member."""

    member_id: str
    assignment: bytes


class SyncGroupRequest(Struct, frozen=True):
    """SyncGroup (API key 14). `assignments` of followers are ignored."""

    generation_id: Int32
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[SyncGroupAssignment, ...] | None = None


class HeartbeatRequest(Struct, frozen=True, gc=False):
    """Heartbeat (API key 12)."""

    generation_id: Int32
    member_id: str
    group_instance_id: str | None = None


class LeavingMember(Struct, frozen=True):
    """One member that leaves: its member id, or only its instance id (an operator's removal)."""

    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveGroupRequest(Struct, frozen=True):
    """LeaveGroup (API key 13) of one or more members."""

    members: tuple[LeavingMember, ...]


class OffsetCommitPartition(Struct, frozen=True, gc=False):
    """An offset to commit. `commit_timestamp` null (or -1) means now; ms."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 | None = None
    commit_timestamp: Int64 | None = None
    committed_metadata: str | None = None


class OffsetCommitTopic(Struct, frozen=True, gc=False):
    """The offsets to commit of one topic."""

    name: str
    partitions: tuple[OffsetCommitPartition, ...]


class OffsetCommitRequest(Struct, frozen=True, kw_only=True, gc=False):
    """OffsetCommit (API key 8). `retention_time_ms` null (or -1) means the broker's retention."""

    generation_id: Int32 | None = None
    member_id: str | None = None
    group_instance_id: str | None = None
    retention_time_ms: Int64 | None = None
    topics: tuple[OffsetCommitTopic, ...]


class OffsetFetchTopic(Struct, frozen=True, gc=False):
    """The requested partitions of one topic."""

    name: str
    partition_indexes: tuple[Int32, ...]


class OffsetFetchRequest(Struct, frozen=True):
    """OffsetFetch (API key 9). Null `topics` request all committed offsets of the group."""

    topics: tuple[OffsetFetchTopic, ...] | None = None
    require_stable: bool | None = None


class DescribeGroupsRequest(Struct, frozen=True):
    """DescribeGroups (API key 15) of one group."""

    include_authorized_operations: bool | None = None


class DeleteGroupsRequest(Struct, frozen=True):
    """DeleteGroups (API key 42) of one group. `force` is refused."""

    force: bool | None = None


class OffsetDeleteTopic(Struct, frozen=True):
    """The partitions of one topic for which offsets are deleted."""

    name: str
    partitions: tuple[Int32, ...]


class OffsetDeleteRequest(Struct, frozen=True):
    """OffsetDelete (API key 47)."""

    topics: tuple[OffsetDeleteTopic, ...]


class RequestEvent(Struct, frozen=True, omit_defaults=True, gc=False):
    """One request of one client to the coordinator of `group_id`: a row of the `requests` table.

    Exactly the body named by `api` is expected. `sent_at` is the time by the producer's clock (ms).
    It serves for latencies, and to order the requests that wait at a take-over; it never decides
    whether a member is alive. `signature` proves that `principal` sent the request
    (`coordinator.signatures`). After `deadline`, ms since 1970 by the coordinator's clock, the
    request is answered REQUEST_TIMED_OUT and changes nothing; null: no deadline.
    """

    request_id: str
    group_id: str
    api: str
    api_version: Int16 | None = None
    client_id: str | None = None
    client_host: str | None = None
    principal: str | None = None
    sent_at: Timestamp | None = None
    find_coordinator: FindCoordinatorRequest | None = None
    join_group: JoinGroupRequest | None = None
    sync_group: SyncGroupRequest | None = None
    heartbeat: HeartbeatRequest | None = None
    leave_group: LeaveGroupRequest | None = None
    offset_commit: OffsetCommitRequest | None = None
    offset_fetch: OffsetFetchRequest | None = None
    describe_groups: DescribeGroupsRequest | None = None
    delete_groups: DeleteGroupsRequest | None = None
    offset_delete: OffsetDeleteRequest | None = None
    signature: str | None = None
    deadline: Int64 | None = None


# --- responses ----------------------------------------------------------------------------------


class FindCoordinatorResponse(Struct, frozen=True):
    """The group's offsets partition and its owner; node -1 with an error."""

    partition: Int32
    node_id: Int32
    host: str
    port: Int32


class JoinGroupResponseMember(Struct, frozen=True):
    """One member of the list that the leader uses to compute the assignment."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResponse(Struct, frozen=True):
    """JoinGroup's answer; only the leader's has `members`."""

    generation_id: Int32 = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    member_id: str = NO_MEMBER_ID
    members: tuple[JoinGroupResponseMember, ...] = ()


class SyncGroupResponse(Struct, frozen=True):
    """SyncGroup's answer: the member's assignment."""

    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatResponse(Struct, frozen=True):
    """Heartbeat's answer has no fields beyond the error code."""


class LeaveGroupResponseMember(Struct, frozen=True):
    """The result for one member of a LeaveGroup."""

    member_id: str
    group_instance_id: str | None
    error_code: Int16


class LeaveGroupResponse(Struct, frozen=True):
    """LeaveGroup's answer; `members` is null below version 3, which has only one code."""

    members: tuple[LeaveGroupResponseMember, ...] | None = ()


class PartitionResult(Struct, frozen=True, gc=False):
    """The result for one partition of an OffsetCommit or OffsetDelete."""

    partition_index: Int32
    error_code: Int16


class TopicResult(Struct, frozen=True, gc=False):
    """The results for the partitions of one topic."""

    name: str
    partitions: tuple[PartitionResult, ...]


class OffsetCommitResponse(Struct, frozen=True):
    """OffsetCommit's answer, one code per partition."""

    topics: tuple[TopicResult, ...] = ()


class OffsetFetchPartition(Struct, frozen=True, gc=False):
    """A committed offset, -1 if none is committed. The epoch is null below version 5."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 | None
    metadata: str
    error_code: Int16 = 0


class OffsetFetchTopicResult(Struct, frozen=True, gc=False):
    """The committed offsets of one topic."""

    name: str
    partitions: tuple[OffsetFetchPartition, ...]


class OffsetFetchResponse(Struct, frozen=True):
    """OffsetFetch's answer."""

    topics: tuple[OffsetFetchTopicResult, ...] = ()


class DescribedMember(Struct, frozen=True):
    """One member of a described group; it has metadata only while the group is Stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeGroupsResponse(Struct, frozen=True):
    """DescribeGroups' answer. `state` is one of Kafka's five state names, "" with an error."""

    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


class DeleteGroupsResponse(Struct, frozen=True):
    """DeleteGroups' answer has no fields beyond the error code."""


class OffsetDeleteResponse(Struct, frozen=True):
    """OffsetDelete's answer, one code per partition; no topics if the whole request failed."""

    topics: tuple[TopicResult, ...] = ()


class Response(Struct, frozen=True, omit_defaults=True, gc=False):
    """The only answer to a request: a row of the `responses` table.

    `error` is Kafka's name of `error_code`; `error_message` explains the error to users.
    `responded_at` is the time of the batch that decided the request (ms).
    """

    request_id: str
    group_id: str
    api: str
    error_code: Int16
    error: str
    error_message: str | None = None
    responded_at: Timestamp | None = None
    find_coordinator: FindCoordinatorResponse | None = None
    join_group: JoinGroupResponse | None = None
    sync_group: SyncGroupResponse | None = None
    heartbeat: HeartbeatResponse | None = None
    leave_group: LeaveGroupResponse | None = None
    offset_commit: OffsetCommitResponse | None = None
    offset_fetch: OffsetFetchResponse | None = None
    describe_groups: DescribeGroupsResponse | None = None
    delete_groups: DeleteGroupsResponse | None = None
    offset_delete: OffsetDeleteResponse | None = None


class RejectedRequest(Struct, frozen=True):
    """An event that cannot be answered: a row of the `rejected_requests` table."""

    rejected_at: Timestamp
    reason: str
    event: str
