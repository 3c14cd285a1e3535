"""Frames of Kafka's protocol: the header and body of a request, and the bytes of a response.

Bodies are decoded and encoded by functions that are compiled from Kafka's message schemas.

Source: Kafka protocol guide; RequestHeader.json and ResponseHeader.json; KIP-482 (flexible
versions), KIP-511 (the ApiVersions response).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from group_coordinator.schemas.kafka.reading import InvalidField, InvalidMessage, end_struct, reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.pipeline.gateway.api import ApiHandler

_SIZE = struct.Struct(">i")
_NO_TAGS = b"\0"
_HEADER = struct.Struct(">hhih")
_HEADER_OF_RESPONSE = struct.Struct(">ii")
API_VERSIONS = 18
SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36


class InvalidFrame(Exception):
    """Error for bytes that are not an allowed request; the connection must be closed."""


class RefusedRequest(InvalidFrame):
    """Error for a request after which the frame `answer` is sent and the connection closed."""

    def __init__(self, why: str, answer: bytes) -> None:
        super().__init__(why)
        self.answer = answer


class RequestHeader(NamedTuple):
    """The header of a request. `body_at` is the position of the body in the frame."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def read_header(frame: bytes, is_flexible: Callable[[int, int], bool]) -> RequestHeader:
    """Decode a frame's header. Raises InvalidFrame.

    `is_flexible` returns whether a version of an API, given by its key, is flexible.
    """
    try:
        api_key, version, correlation_id, length = _HEADER.unpack_from(frame)
    except struct.error:
        raise InvalidFrame(f"a frame of {len(frame)} bytes has no header") from None
    at = _HEADER.size
    client_id = None
    if length >= 0:
        if len(frame) < at + length:
            raise InvalidFrame("the client id is longer than its frame")
        try:
            client_id = frame[at : at + length].decode()
        except UnicodeDecodeError:
            raise InvalidFrame("the client id is not UTF-8") from None
        at += length
    if is_flexible(api_key, version):
        if frame[at : at + 1] == _NO_TAGS:
            return RequestHeader(api_key, version, correlation_id, client_id, at + 1)
        try:
            at = end_struct(frame, at)
        except (InvalidField, IndexError):
            raise InvalidFrame("the header is cut off by the end of its frame") from None
    return RequestHeader(api_key, version, correlation_id, client_id, at)


def read_body(api: ApiHandler, version: int, frame: bytes, at: int) -> Any:
    """Decode a request's body, which begins at `at`. Raises InvalidFrame.

    Bytes after the body are ignored, as in Kafka.
    """
    try:
        return reader(api.request, version)(frame, at)
    except InvalidMessage as error:
        raise InvalidFrame(str(error)) from error


def response_frame(correlation_id: int, api: ApiHandler, response: Any, version: int) -> bytes:
    """Return the frame of a response, with its size; `response` may be an encoded body."""
    body = response if isinstance(response, bytes) else api.write(response, version)
    # KIP-511: ApiVersions has the old response header, because clients decode it before they know
    # the broker's versions.
    flexible = api.is_flexible(version) and api.row.key != API_VERSIONS
    if flexible:
        return _HEADER_OF_RESPONSE.pack(5 + len(body), correlation_id) + _NO_TAGS + body
    return _HEADER_OF_RESPONSE.pack(4 + len(body), correlation_id) + body


def bare_frame(content: bytes) -> bytes:
    """Return a frame with content but no header."""
    return _SIZE.pack(len(content)) + content


def frame_size(buffer: bytes | bytearray) -> int | None:
    """Return the size field of the first frame in a buffer; None if it is not complete."""
    if len(buffer) < _SIZE.size:
        return None
    size: int = _SIZE.unpack_from(buffer)[0]
    return size
