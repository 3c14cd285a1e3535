"""JoinGroup (API key 11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.api import ApiHandler, Decided
from group_coordinator.pipeline.gateway.coordinator_link import when_late
from group_coordinator.schemas import messages
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.schemas.kafka.structs import GroupRequest

JoinGroupResponse = struct("JoinGroupResponse")
# From this version on, "no protocol" is null. In earlier versions the field is not nullable.
_NULL_PROTOCOL = 7


def _ask(call: RequestContext, request: GroupRequest) -> messages.RequestEvent:
    return call.event("join_group", request.group_id, request.body)


def _respond(call: RequestContext, request: GroupRequest, decided: messages.Response) -> Any:
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


API = ApiHandler("JoinGroup", Decided(_ask, _respond))
