"""Reading a request event from its JSON: what it is, or whom to answer what is wrong with it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from group_coordinator.schemas.apis import DECIDED
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import RequestEvent
from group_coordinator.schemas.unreadable import UNREADABLE


class Malformed(Struct, frozen=True):
    """An event that is not a request: whom to answer as far as it says so, and what is wrong."""

    request_id: str | None
    group_id: str | None
    api: str
    message: str
    error_code: int = ErrorCode.INVALID_REQUEST


# The field of an event whose reader left the rest of the request out: why it did. The table has no
# such column, so no sender can set it.
REFUSED = "refused"


class _Envelope(Struct, frozen=True):
    """The fields that say whom to answer, of whatever type, in an event that is malformed."""

    request_id: Any = None
    group_id: Any = None
    api: Any = None
    refused: Any = None


_decode_event = msgspec.json.Decoder(RequestEvent).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def decode_request(text: str | bytes) -> RequestEvent | Malformed:
    """Read one request event from its JSON; never raises.

    Returns the event, or a `Malformed` that says what was wrong. `request_id` and `group_id` of a
    `Malformed` are None when the event does not carry them: it can then only be rejected.
    """
    try:
        event = _decode_event(text)
    except UNREADABLE as error:
        return _malformed(text, str(error))
    api = DECIDED.get(event.api)
    if api is None:
        return _refuse(event, f"unknown api {event.api!r}; known: {', '.join(DECIDED)}")
    if getattr(event, event.api) is None:
        # A request that its reader refused has no body either.
        return _malformed(text, f"api is {event.api!r} but there is no {event.api} body")
    version = event.api_version
    if version is not None and not 0 <= version <= api.newest:
        message = f"api_version {version} of {event.api} is outside 0..{api.newest}"
        return _refuse(event, message, ErrorCode.UNSUPPORTED_VERSION)
    return event


def refusal(text: str | bytes) -> str | None:
    """Return why the reader of an event left the rest of it out, None if it left nothing out."""
    try:
        refused = _decode_envelope(text).refused
    except UNREADABLE:
        return None
    return refused if isinstance(refused, str) else None


def _refuse(
    event: RequestEvent, message: str, code: ErrorCode = ErrorCode.INVALID_REQUEST
) -> Malformed:
    return Malformed(event.request_id, event.group_id, event.api, message, code)


def _malformed(text: str | bytes, message: str) -> Malformed:
    try:
        envelope = _decode_envelope(text)
    except UNREADABLE:
        return Malformed(None, None, "", message)
    request_id = envelope.request_id if isinstance(envelope.request_id, str) else None
    group_id = envelope.group_id if isinstance(envelope.group_id, str) else None
    api = envelope.api if isinstance(envelope.api, str) else ""
    refused = envelope.refused
    if isinstance(refused, str):
        message = refused
    return Malformed(request_id, group_id, api, message)
