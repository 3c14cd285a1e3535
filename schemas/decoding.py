"""Decoding of a request event from JSON, into a request or into an error that can be answered."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from group_coordinator.schemas.apis import DECIDED
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import RequestEvent

# Bad JSON or a bad field, bad UTF-8, nesting too deep for the stack.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)


class Malformed(Struct, frozen=True):
    """An event that is not a valid request, with the fields that are needed to answer it."""

    request_id: str | None
    group_id: str | None
    api: str
    message: str
    error_code: int = ErrorCode.INVALID_REQUEST


# The field in which a reader of `requests` explains why it left out the rest of a request. The
# table has no such column, so no sender can set it.
REFUSED = "refused"


class _Envelope(Struct, frozen=True):
    """The fields that are needed to answer a malformed event; they may have any type."""

    request_id: Any = None
    group_id: Any = None
    api: Any = None
    refused: Any = None


_decode_event = msgspec.json.Decoder(RequestEvent).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def decode_request(text: str | bytes) -> RequestEvent | Malformed:
    """Decode one request event from JSON; return a `Malformed` with the reason if it is invalid.

    Never raises. `request_id` and `group_id` of a `Malformed` are None if the event lacks them. An
    event without a request id can only be rejected.
    """
    try:
        event = _decode_event(text)
    except DECODE_ERRORS as error:
        return _malformed(text, str(error))
    api = DECIDED.get(event.api)
    if api is None:
        return _refuse(event, f"unknown api {event.api!r}; known: {', '.join(DECIDED)}")
    if getattr(event, event.api) is None:
        # A request that the table's reader refused has no body either.
        return _malformed(text, f"api is {event.api!r} but there is no {event.api} body")
    version = event.api_version
    if version is not None and not 0 <= version <= api.newest:
        message = f"api_version {version} of {event.api} is outside 0..{api.newest}"
        return _refuse(event, message, ErrorCode.UNSUPPORTED_VERSION)
    return event


def refusal(text: str | bytes) -> str | None:
    """Return why the table's reader left out parts of an event, None if it is complete."""
    try:
        refused = _decode_envelope(text).refused
    except DECODE_ERRORS:
        return None
    return refused if isinstance(refused, str) else None


def _refuse(
    event: RequestEvent, message: str, code: ErrorCode = ErrorCode.INVALID_REQUEST
) -> Malformed:
    return Malformed(event.request_id, event.group_id, event.api, message, code)


def _malformed(text: str | bytes, message: str) -> Malformed:
    try:
        envelope = _decode_envelope(text)
    except DECODE_ERRORS:
        return Malformed(None, None, "", message)
    request_id = envelope.request_id if isinstance(envelope.request_id, str) else None
    group_id = envelope.group_id if isinstance(envelope.group_id, str) else None
    api = envelope.api if isinstance(envelope.api, str) else ""
    refused = envelope.refused
    if isinstance(refused, str):
        message = refused
    return Malformed(request_id, group_id, api, message)
