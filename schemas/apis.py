"""The table of the served APIs of Kafka, one row each; other code reads this table.

To add an API that the coordinator decides: add its Structs and columns in `messages`, a row here,
its handler in `coordinator.group`, and a line on a page. If gateways serve it, add its handler to
`pipeline.gateway.apis`.

Source: Apache Kafka, ApiKeys; KafkaApis for the operation that each API needs.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode


class LingerMultiple(IntEnum):
    """How long requests of an API may wait for others to share a commit: a factor of a linger time.

    A node that owns 1/n of the offsets partitions waits up to (n - 1) * factor *
    `trigger.linger.ms`. tests/bench/LIMITS.md has the cost of four nodes with these numbers and
    with others.
    """

    NONE = 0
    COMMITS = 1
    HEARTBEATS = 2


class Api(Struct, frozen=True):
    """One API. A gateway speaks the versions `lowest` to `highest`, if any. `key` is its API key.

    `parks`: the answer may wait for other clients' requests, so the gateway keeps reading
    connections, however many such requests are in flight. `queue`: once a request is in this queue,
    the connection's next request of the same queue may start. The queues are "records", and "rows"
    of the table `requests` that do not wait for other clients. `runs_after_disconnect`: the request
    is completed even if its client disconnects; every other request is then dropped.
    """

    name: str
    key: int
    lowest: int = 0
    highest: int = -1
    parks: bool = False
    queue: str | None = None
    runs_after_disconnect: bool = False

    @property
    def versions(self) -> range:
        """The versions that a gateway speaks."""
        return range(self.lowest, self.highest + 1)

    @property
    def frames_begin(self) -> bytes:
        """The first bytes of the API's frames: its key."""
        return self.key.to_bytes(2, "big")


class DecidedApi(Api, frozen=True, kw_only=True):
    """An API that the coordinator decides; `name` is also the name of its columns.

    `request` and `response` are the Structs of the columns. Events may have the versions 0 to
    `newest`, the newest of Kafka 4.1. `operation`, one of `acls.AclOperation`, is the operation
    that ACLs must allow on the group. `is_repeatable`: deciding a request twice is the same as
    once. `is_audited`: the UI's page of changes shows the request's principal.

    `of_other_type` is the error code for a group that is not a classic group: Kafka's code, with
    two exceptions. Kafka answers OffsetFetch without offsets, after which a consumer would start
    from the beginning. DeleteGroups is refused, because a group of an unknown kind may not be
    empty.
    """

    request: type[Struct]
    response: type[Struct]
    newest: int
    operation: str
    needs_group_id: bool = False
    is_repeatable: bool = False
    linger: LingerMultiple = LingerMultiple.NONE
    of_other_type: ErrorCode = ErrorCode.GROUP_ID_NOT_FOUND
    is_audited: bool = False


# These rows are easier to read when wrapped by hand.
# fmt: off
_SERVED = (
    Api("produce", 0, 3, 12, queue="records", runs_after_disconnect=True),
    Api("fetch", 1, 4, 12, parks=True),
    Api("list_offsets", 2, 1, 10),
    Api("metadata", 3, 0, 12),
    Api("list_groups", 16, 0, 5),
    Api("sasl_handshake", 17, 0, 1),
    Api("api_versions", 18, 0, 4),
    Api("create_topics", 19, 2, 7),
    Api("delete_topics", 20, 1, 6),
    Api("init_producer_id", 22, 0, 4),
    Api("describe_acls", 29, 1, 3),
    Api("create_acls", 30, 1, 3),
    Api("delete_acls", 31, 1, 3),
    Api("describe_configs", 32, 1, 4),
    Api("sasl_authenticate", 36, 0, 2),
    Api("create_partitions", 37, 0, 3),
    Api("describe_cluster", 60, 0, 2),
    Api("consumer_group_heartbeat", 68, 0, 1),
)
_DECIDED = (
    DecidedApi("find_coordinator", 10, 0, 6, newest=6, operation="DESCRIBE", is_repeatable=True,
        request=m.FindCoordinatorRequest, response=m.FindCoordinatorResponse),
    DecidedApi("join_group", 11, 0, 9, newest=9, operation="READ", needs_group_id=True, parks=True,
        request=m.JoinGroupRequest, response=m.JoinGroupResponse, is_audited=True,
        of_other_type=ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    DecidedApi("sync_group", 14, 0, 5, newest=5, operation="READ", needs_group_id=True, parks=True,
        request=m.SyncGroupRequest, response=m.SyncGroupResponse,
        of_other_type=ErrorCode.UNKNOWN_MEMBER_ID),
    DecidedApi("heartbeat", 12, 0, 4, newest=4, operation="READ", needs_group_id=True,
        request=m.HeartbeatRequest, response=m.HeartbeatResponse, is_repeatable=True,
        queue="rows", linger=LingerMultiple.HEARTBEATS, of_other_type=ErrorCode.UNKNOWN_MEMBER_ID),
    DecidedApi("leave_group", 13, 0, 5, newest=5, operation="READ", needs_group_id=True,
        request=m.LeaveGroupRequest, response=m.LeaveGroupResponse, is_audited=True,
        queue="rows", runs_after_disconnect=True, of_other_type=ErrorCode.UNKNOWN_MEMBER_ID),
    DecidedApi("offset_commit", 8, 2, 9, newest=10, operation="READ",
        request=m.OffsetCommitRequest, response=m.OffsetCommitResponse, is_audited=True,
        queue="rows", runs_after_disconnect=True, linger=LingerMultiple.COMMITS),
    DecidedApi("offset_fetch", 9, 1, 9, newest=10, operation="DESCRIBE", is_repeatable=True,
        request=m.OffsetFetchRequest, response=m.OffsetFetchResponse),
    DecidedApi("describe_groups", 15, 0, 6, newest=6, operation="DESCRIBE", is_repeatable=True,
        request=m.DescribeGroupsRequest, response=m.DescribeGroupsResponse),
    DecidedApi("delete_groups", 42, 0, 2, newest=2, operation="DELETE", is_audited=True,
        request=m.DeleteGroupsRequest, response=m.DeleteGroupsResponse,
        of_other_type=ErrorCode.NON_EMPTY_GROUP),
    DecidedApi("offset_delete", 47, 0, 0, newest=0, operation="DELETE", needs_group_id=True,
        request=m.OffsetDeleteRequest, response=m.OffsetDeleteResponse, is_audited=True),
)
# fmt: on
APIS: dict[str, Api] = {api.name: api for api in (*_SERVED, *_DECIDED)}
DECIDED: dict[str, DecidedApi] = {api.name: api for api in _DECIDED}


def version_of(event: m.RequestEvent) -> int:
    """Return the version of a request; a null `api_version` means the newest."""
    version = event.api_version
    return DECIDED[event.api].newest if version is None else version
