"""LeaveGroup (API key 13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.api import ApiHandler, Decided
from group_coordinator.pipeline.gateway.coordinator_link import when_late
from group_coordinator.schemas import messages
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext

LeaveGroupResponse = struct("LeaveGroupResponse")
# From this version on, a request names any number of members (KIP-345).
_MANY_MEMBERS = 3


def _ask(call: RequestContext, request: Any) -> messages.RequestEvent:
    many = call.version >= _MANY_MEMBERS
    leaving = request.members if many else (messages.LeavingMember(request.member_id),)
    body = messages.LeaveGroupRequest(leaving)
    return call.event("leave_group", request.group_id, body)


def _respond(_call: RequestContext, _request: Any, decided: messages.Response) -> Any:
    left = decided.leave_group.members if decided.leave_group is not None else ()
    return LeaveGroupResponse(error_code=when_late(decided.error_code), members=left or ())


API = ApiHandler("LeaveGroup", Decided(_ask, _respond, in_time=True))
