"""The SASL exchange, which authenticates a client of a SASL listener before other requests.

The client may first send one ApiVersions request. SaslHandshake names a mechanism. The mechanism's
tokens follow: in SaslAuthenticate requests after a handshake of version 1, as bare frames after
version 0. Any other request closes the connection. A wrong password closes it after an error
response.

Source: Apache Kafka, SaslServerAuthenticator; KIP-43, KIP-152.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.security.mechanisms import AuthenticationFailed, begin
from group_coordinator.pipeline.gateway.security.users import UsersError
from group_coordinator.pipeline.gateway.wire import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    InvalidFrame,
    RefusedRequest,
    bare_frame,
    response_frame,
)
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.gateway.api import ApiHandler
    from group_coordinator.pipeline.gateway.refusals import RefusalCounts
    from group_coordinator.pipeline.gateway.security.mechanisms import Mechanism
    from group_coordinator.pipeline.gateway.security.users import Users
    from group_coordinator.pipeline.gateway.wire import RequestHeader

_Handshake, _Authenticate = struct("SaslHandshakeResponse"), struct("SaslAuthenticateResponse")
# The delay of an authentication error, s, against fast guessing of passwords: Kafka's default of
# connection.failed.authentication.delay.ms.
_FAILED_DELAY_S = 0.1
# The first bytes of frames that are allowed before authentication: the keys of their APIs.
_ALLOWED = tuple(
    key.to_bytes(2, "big") for key in (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
)


def check_allowed(frame: bytes) -> None:
    """Raise InvalidFrame if a frame is not allowed before authentication.

    Only the API key is read, because decoding the longest allowed frame takes milliseconds.
    """
    if not frame.startswith(_ALLOWED):
        key = int.from_bytes(frame[:2], "big", signed=True)
        raise InvalidFrame(f"API key {key} came before authentication was done")


class Authenticator:
    """The authentication of one connection. `principal` is set once it has succeeded."""

    def __init__(
        self, users: Users, mechanisms: Sequence[str], host: str, refused: RefusalCounts
    ) -> None:
        self._users = users
        self._mechanisms = mechanisms
        self._host = host
        self._refused = refused
        self._may_ask_versions = True
        self._exchange: Mechanism | None = None
        self.takes_bare_tokens = False
        self.principal: str | None = None

    def allow_versions(self) -> None:
        """Record an ApiVersions request. Raises InvalidFrame if it is not allowed any more."""
        if not self._may_ask_versions:
            raise InvalidFrame("ApiVersions came after the SASL exchange had begun")
        self._may_ask_versions = False

    async def answer(self, header: RequestHeader, api: ApiHandler, request: Any) -> bytes:
        """Answer a SaslHandshake or SaslAuthenticate request.

        Raises RefusedRequest if a response is to be sent before the connection is closed, as in
        Kafka. Raises InvalidFrame if it is closed without one.
        """
        self._may_ask_versions = False
        if header.api_key == SASL_HANDSHAKE and self._exchange is None:
            return await self._handshake(header, api, request.mechanism)
        if header.api_key == SASL_AUTHENTICATE and self._exchange is not None:
            return await self._authenticate(self._exchange, header, api, request.auth_bytes)
        raise InvalidFrame(f"API key {header.api_key} came before authentication was done")

    async def answer_token(self, token: bytes) -> bytes:
        """Answer a bare token, after a handshake of version 0. Raises InvalidFrame."""
        assert self._exchange is not None
        try:
            return bare_frame(await self._next(self._exchange, token))
        except AuthenticationFailed as error:
            await asyncio.sleep(_FAILED_DELAY_S)
            raise InvalidFrame(error.logged) from error

    async def _handshake(self, header: RequestHeader, api: ApiHandler, mechanism: str) -> bytes:
        known = mechanism in self._mechanisms
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        response = _Handshake(error_code=int(code), mechanisms=list(self._mechanisms))
        frame = response_frame(header.correlation_id, api, response, header.version)
        if not known:
            self._refused.count("sasl_handshake", code)
            await asyncio.sleep(_FAILED_DELAY_S)
            raise RefusedRequest(f"SASL mechanism {mechanism[:40]!r} is not enabled", frame)
        self._exchange = begin(mechanism, self._users, self._host)
        self.takes_bare_tokens = header.version == 0
        return frame

    async def _authenticate(
        self, exchange: Mechanism, header: RequestHeader, api: ApiHandler, token: bytes
    ) -> bytes:
        try:
            answer = await self._next(exchange, token)
        except AuthenticationFailed as error:
            await asyncio.sleep(_FAILED_DELAY_S)
            code = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
            refused = _Authenticate(
                error_code=code, error_message=str(error), auth_bytes=b"", session_lifetime_ms=0
            )
            frame = response_frame(header.correlation_id, api, refused, header.version)
            raise RefusedRequest(error.logged, frame) from error
        response = _Authenticate(
            error_code=0, error_message=None, auth_bytes=answer, session_lifetime_ms=0
        )
        return response_frame(header.correlation_id, api, response, header.version)

    async def _next(self, exchange: Mechanism, token: bytes) -> bytes:
        try:
            answer = await exchange.answer(token)
        except AuthenticationFailed:
            self._refused.count("sasl_authenticate", ErrorCode.SASL_AUTHENTICATION_FAILED)
            raise
        except UsersError as error:
            # An authentication error would be final for the client, so the connection is closed.
            raise InvalidFrame(str(error)) from error
        if exchange.user is not None:
            self.principal = f"User:{exchange.user}"
            self.takes_bare_tokens = False
        return answer
