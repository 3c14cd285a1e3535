"""SyncGroup (API key 14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.consumer.group import SyncGroupRequest, SyncGroupResponse

from group_coordinator.pipeline.gateway.api import Api, Decided
from group_coordinator.schemas import messages

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.call import Call


def _ask(call: Call, request: SyncGroupRequest) -> messages.RequestEvent:
    body = messages.SyncGroupRequest(
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple(
            messages.SyncGroupAssignment(each.member_id, bytes(each.assignment))
            for each in request.assignments
        ),
    )
    return call.event("sync_group", request.group_id, body)


def _respond(
    _call: Call, _request: SyncGroupRequest, decided: messages.Response
) -> SyncGroupResponse:
    synced = decided.sync_group or messages.SyncGroupResponse()
    return SyncGroupResponse(
        error_code=decided.error_code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


API = Api(SyncGroupRequest, Decided(_ask, _respond))
