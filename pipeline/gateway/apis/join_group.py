"""JoinGroup (API key 11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.consumer.group import JoinGroupRequest, JoinGroupResponse

from group_coordinator.pipeline.gateway.api import Api, Decided
from group_coordinator.schemas import messages

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.call import Call

_Member = JoinGroupResponse.JoinGroupResponseMember
# From this version on "no protocol" is null; before it, a text has to stand there.
_NULL_PROTOCOL = 7


def _ask(call: Call, request: JoinGroupRequest) -> messages.RequestEvent:
    body = messages.JoinGroupRequest(
        session_timeout_ms=request.session_timeout_ms,
        # Version 0 has none: the session's is taken.
        rebalance_timeout_ms=request.rebalance_timeout_ms if call.version else None,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocols=tuple(
            messages.JoinGroupProtocol(each.name, bytes(each.metadata))
            for each in request.protocols
        ),
        reason=request.reason,
    )
    return call.event("join_group", request.group_id, body)


def _respond(
    call: Call, request: JoinGroupRequest, decided: messages.Response
) -> JoinGroupResponse:
    joined = decided.join_group or messages.JoinGroupResponse(member_id=request.member_id)
    name = joined.protocol_name
    return JoinGroupResponse(
        error_code=decided.error_code,
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type,
        protocol_name=(name or "") if call.version < _NULL_PROTOCOL else name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            _Member(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in joined.members
        ],
    )


API = Api(JoinGroupRequest, Decided(_ask, _respond))
