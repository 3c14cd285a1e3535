"""Heartbeat (API key 12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.consumer.group import HeartbeatRequest, HeartbeatResponse

from pipeline.gateway.api import Api
from schemas import messages

if TYPE_CHECKING:
    from pipeline.gateway.call import Call


async def _answer(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    body = messages.HeartbeatRequest(
        request.generation_id, request.member_id, request.group_instance_id
    )
    decided = await call.ask("heartbeat", request.group_id, body)
    return HeartbeatResponse(error_code=decided.error_code)


API = Api(HeartbeatRequest, 0, 4, _answer)
