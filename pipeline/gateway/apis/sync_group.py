"""SyncGroup (API key 14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.api import ApiHandler, Decided
from group_coordinator.pipeline.gateway.coordinator_link import when_late
from group_coordinator.schemas import messages
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.schemas.kafka.structs import GroupRequest


SyncGroupResponse = struct("SyncGroupResponse")


def _ask(call: RequestContext, request: GroupRequest) -> messages.RequestEvent:
    return call.event("sync_group", request.group_id, request.body)


def _respond(_call: RequestContext, _request: GroupRequest, decided: messages.Response) -> Any:
    synced = decided.sync_group or messages.SyncGroupResponse()
    return SyncGroupResponse(
        error_code=when_late(decided.error_code),
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


API = ApiHandler("SyncGroup", Decided(_ask, _respond))
