"""The APIs of group members: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

ConsumerGroupHeartbeat, of the next protocol, is refused.

A client's request becomes one request to the coordinator. Heartbeat responses, the most frequent
ones, are encoded by hand instead of by Kafka's schema.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.api import ApiHandler, CoordinatorHandler, unchanged
from group_coordinator.pipeline.gateway.coordinator_link import when_late
from group_coordinator.schemas import messages
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.schemas.kafka.structs import GroupRequest


# --- JoinGroup (API key 11) -----------------------------------------------------------------------


JoinGroupResponse = struct("JoinGroupResponse")
# From this version on, "no protocol" is null. In earlier versions the field is not nullable.
_NULL_PROTOCOL = 7


def _join_response(call: RequestContext, request: GroupRequest, decided: messages.Response) -> Any:
    joined = decided.join_group or messages.JoinGroupResponse(member_id=request.body.member_id)
    name = joined.protocol_name
    return JoinGroupResponse(
        error_code=when_late(decided.error_code),
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type,
        protocol_name=(name or "") if call.version < _NULL_PROTOCOL else name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=joined.members,
    )


JOIN_GROUP = ApiHandler("JoinGroup", CoordinatorHandler(unchanged("join_group"), _join_response))


# --- SyncGroup (API key 14) -----------------------------------------------------------------------


SyncGroupResponse = struct("SyncGroupResponse")


def _sync_response(
    _call: RequestContext, _request: GroupRequest, decided: messages.Response
) -> Any:
    synced = decided.sync_group or messages.SyncGroupResponse()
    return SyncGroupResponse(
        error_code=when_late(decided.error_code),
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


SYNC_GROUP = ApiHandler("SyncGroup", CoordinatorHandler(unchanged("sync_group"), _sync_response))


# --- Heartbeat (API key 12) -----------------------------------------------------------------------


_FLEXIBLE = 4
_WITH_THROTTLE = 1
_NO_THROTTLE = 0
_CODE = Struct(">h")
_THROTTLE_AND_CODE = Struct(">ih")
_THROTTLE_CODE_AND_NO_TAGS = Struct(">ihx")


def _heartbeat_code(
    _call: RequestContext, _request: GroupRequest, decided: messages.Response
) -> int:
    """Return the error code, the only field of the response that varies."""
    return when_late(decided.error_code)


def _write_heartbeat(code: int, version: int) -> bytes:
    if version >= _FLEXIBLE:
        return _THROTTLE_CODE_AND_NO_TAGS.pack(_NO_THROTTLE, code)
    if version >= _WITH_THROTTLE:
        return _THROTTLE_AND_CODE.pack(_NO_THROTTLE, code)
    return _CODE.pack(code)


HEARTBEAT = ApiHandler(
    "Heartbeat", CoordinatorHandler(unchanged("heartbeat"), _heartbeat_code), _write_heartbeat
)


# --- LeaveGroup (API key 13) ----------------------------------------------------------------------


LeaveGroupResponse = struct("LeaveGroupResponse")
# From this version on, a request names any number of members (KIP-345).
_MANY_MEMBERS = 3


def _leave_request(call: RequestContext, request: Any) -> messages.RequestEvent:
    many = call.version >= _MANY_MEMBERS
    leaving = request.members if many else (messages.LeavingMember(request.member_id),)
    body = messages.LeaveGroupRequest(leaving)
    return call.event("leave_group", request.group_id, body)


def _leave_response(_call: RequestContext, _request: Any, decided: messages.Response) -> Any:
    left = decided.leave_group.members if decided.leave_group is not None else ()
    return LeaveGroupResponse(error_code=when_late(decided.error_code), members=left or ())


LEAVE_GROUP = ApiHandler(
    "LeaveGroup", CoordinatorHandler(_leave_request, _leave_response, has_deadline=True)
)


# --- ConsumerGroupHeartbeat (API key 68) ----------------------------------------------------------


ConsumerGroupHeartbeatResponse = struct("ConsumerGroupHeartbeatResponse")


async def _refuse_consumer_protocol(call: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """Refuse the protocol of KIP-848, as Kafka does while it is disabled.

    Without this API, librdkafka would wait for it and report no error.
    """
    return ConsumerGroupHeartbeatResponse(
        error_code=int(ErrorCode.UNSUPPORTED_VERSION),
        error_message="group.protocol=consumer (KIP-848) is not supported: set "
        "group.protocol=classic",
    )


CONSUMER_GROUP_HEARTBEAT = ApiHandler("ConsumerGroupHeartbeat", _refuse_consumer_protocol)
