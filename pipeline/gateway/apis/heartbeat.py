"""Heartbeat (API key 12)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kafka.protocol.consumer.group import HeartbeatRequest
from msgspec import Struct

from group_coordinator.pipeline.gateway.api import Api, Codec, Decided
from group_coordinator.pipeline.gateway.fields import FlexibleReader, Reader
from group_coordinator.schemas import messages

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.call import Call

_FLEXIBLE = 4
_WITH_THROTTLE = 1
_WITH_INSTANCE = 3
_NO_THROTTLE = 0
_CODE = struct.Struct(">h")
_THROTTLE_AND_CODE = struct.Struct(">ih")
_THROTTLE_CODE_AND_NO_TAGS = struct.Struct(">ihx")


class Heartbeat(Struct):
    """A request: of which group, and what the coordinator is asked; `asked`: what it was asked."""

    group_id: str
    body: messages.HeartbeatRequest
    asked: messages.RequestEvent | None = None


def _ask(call: Call, request: Heartbeat) -> messages.RequestEvent:
    if request.asked is None:
        request.asked = call.event("heartbeat", request.group_id, request.body)
        return request.asked
    return call.again(request.asked)


def _respond(_call: Call, _request: Heartbeat, decided: messages.Response) -> int:
    """The error code, which is all that a heartbeat is answered with."""
    return decided.error_code


def _read(frame: bytes, at: int, version: int) -> tuple[Heartbeat, int]:
    fields = FlexibleReader(frame, at) if version >= _FLEXIBLE else Reader(frame, at)
    group_id = fields.text()
    generation_id = fields.int32()
    member_id = fields.text()
    instance_id = fields.nullable_text() if version >= _WITH_INSTANCE else None
    fields.end_struct()
    body = messages.HeartbeatRequest(generation_id, member_id, instance_id)
    return Heartbeat(group_id, body), fields.at


def _write(code: int, version: int) -> bytes:
    if version >= _FLEXIBLE:
        return _THROTTLE_CODE_AND_NO_TAGS.pack(_NO_THROTTLE, code)
    if version >= _WITH_THROTTLE:
        return _THROTTLE_AND_CODE.pack(_NO_THROTTLE, code)
    return _CODE.pack(code)


API = Api(HeartbeatRequest, Decided(_ask, _respond), Codec(_read, _write), repeats=True)
