"""Heartbeat (API key 12)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from group_coordinator.pipeline.gateway.api import ApiHandler, Decided
from group_coordinator.pipeline.gateway.coordinator_link import when_late

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.schemas import messages
    from group_coordinator.schemas.kafka.structs import GroupRequest

_FLEXIBLE = 4
_WITH_THROTTLE = 1
_NO_THROTTLE = 0
_CODE = struct.Struct(">h")
_THROTTLE_AND_CODE = struct.Struct(">ih")
_THROTTLE_CODE_AND_NO_TAGS = struct.Struct(">ihx")


def _ask(call: RequestContext, request: GroupRequest) -> messages.RequestEvent:
    return call.event("heartbeat", request.group_id, request.body)


def _respond(_call: RequestContext, _request: GroupRequest, decided: messages.Response) -> int:
    """Return the error code, the only field of the response that varies."""
    return when_late(decided.error_code)


def _write(code: int, version: int) -> bytes:
    if version >= _FLEXIBLE:
        return _THROTTLE_CODE_AND_NO_TAGS.pack(_NO_THROTTLE, code)
    if version >= _WITH_THROTTLE:
        return _THROTTLE_AND_CODE.pack(_NO_THROTTLE, code)
    return _CODE.pack(code)


API = ApiHandler("Heartbeat", Decided(_ask, _respond), _write)
