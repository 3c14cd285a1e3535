"""LeaveGroup (API key 13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.consumer.group import LeaveGroupRequest, LeaveGroupResponse

from group_coordinator.pipeline.gateway.api import Api, Decided
from group_coordinator.pipeline.gateway.coordinator_link import when_late
from group_coordinator.schemas import messages

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.call import Call

# From this version on a request names any number of members (KIP-345).
_MANY_MEMBERS = 3


def _ask(call: Call, request: LeaveGroupRequest) -> messages.RequestEvent:
    if call.version < _MANY_MEMBERS:
        leaving = [messages.LeavingMember(request.member_id)]
    else:
        leaving = [
            messages.LeavingMember(each.member_id, each.group_instance_id, each.reason)
            for each in request.members
        ]
    body = messages.LeaveGroupRequest(tuple(leaving))
    return call.event("leave_group", request.group_id, body)


def _respond(
    _call: Call, _request: LeaveGroupRequest, decided: messages.Response
) -> LeaveGroupResponse:
    left = decided.leave_group.members if decided.leave_group is not None else ()
    return LeaveGroupResponse(
        error_code=when_late(decided.error_code),
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=member.error_code,
            )
            for member in left or ()
        ],
    )


API = Api(LeaveGroupRequest, Decided(_ask, _respond, in_time=True))
