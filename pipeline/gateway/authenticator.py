"""The SASL exchange, which authenticates a client of a SASL listener before other requests.

The client may first send one ApiVersions request. SaslHandshake names a mechanism. The mechanism's
tokens follow: in SaslAuthenticate requests after a handshake of version 1, as bare frames after
version 0. Any other request closes the connection. A wrong password closes it after an error
response.

Source: Apache Kafka, SaslServerAuthenticator, PlainSaslServer and ScramSaslServer; KIP-43, KIP-152;
RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM).
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.users import Credential, UsersError, hash_of
from group_coordinator.pipeline.gateway.wire import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    InvalidFrame,
    RefusedRequest,
    bare_frame,
    response_frame,
)
from group_coordinator.pipeline.gateway_settings import HASHES, PLAIN
from group_coordinator.pipeline.quoting import quoted_name
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.gateway.api import ApiHandler
    from group_coordinator.pipeline.gateway.refusals import RefusalCounts
    from group_coordinator.pipeline.gateway.users import Users
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
        self._exchange: Plain | Scram | None = None
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
        self, exchange: Plain | Scram, header: RequestHeader, api: ApiHandler, token: bytes
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

    async def _next(self, exchange: Plain | Scram, token: bytes) -> bytes:
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


# --- the mechanisms -------------------------------------------------------------------------------

_NONCE_BYTES = 24


class AuthenticationFailed(Exception):
    """Failed authentication: wrong credentials, or a token that the mechanism does not have.

    The message may be sent to the client. `logged` also has the user name that the client gave.
    """

    def __init__(self, why: str, user: str | None = None) -> None:
        super().__init__(why)
        self.logged = why if user is None else f"{why} (user {quoted_name(user)})"


def begin(mechanism: str, users: Users, host: str) -> Plain | Scram:
    """Start the exchange of one of `MECHANISMS` with a client at the address `host`.

    The mechanism's `user` is set once the client is authenticated.
    """
    return Plain(users, host) if mechanism == PLAIN else Scram(mechanism, users)


class Plain:
    """The mechanism PLAIN: one token with the name and the password."""

    def __init__(self, users: Users, host: str) -> None:
        self._users = users
        self._host = host
        self.user: str | None = None

    async def answer(self, token: bytes) -> bytes:
        """Check the password; return an empty answer. Raises AuthenticationFailed."""
        try:
            authorization_id, user, password = token.decode().split("\0")
        except ValueError:
            raise AuthenticationFailed(
                "Invalid SASL/PLAIN response: expected 3 texts with NUL between them"
            ) from None
        if authorization_id not in ("", user):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
                user,
            )
        if not await self._users.has_password(user, password, self._host):
            raise AuthenticationFailed("Authentication failed: Invalid username or password", user)
        self.user = user
        return b""


class Scram:
    """The mechanism SCRAM: the client proves that it has the password, the server its keys."""

    def __init__(self, mechanism: str, users: Users, server_nonce: str | None = None) -> None:
        """Take `server_nonce`, which only tests give; it is random otherwise."""
        self._mechanism = mechanism
        self._users = users
        self._server_nonce = server_nonce or secrets.token_urlsafe(_NONCE_BYTES)
        self._first: tuple[str, str, str, str] | None = None
        self._credential: Credential | None = None
        self.user: str | None = None

    async def answer(self, token: bytes) -> bytes:
        """Answer the client's first or final message. Raises AuthenticationFailed."""
        try:
            text = token.decode()
            return self._challenge(text) if self._first is None else self._verify(text)
        except ValueError as error:
            raise self._failed() from error

    def _failed(self) -> AuthenticationFailed:
        return AuthenticationFailed(
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism}",
            None if self._credential is None else self._credential.user,
        )

    def _challenge(self, text: str) -> bytes:
        """Read the client's first message, its name and nonce; return both nonces and the salt."""
        binding, authorization_id, bare = text.split(",", 2)
        name, nonce, *_extensions = bare.split(",")
        # `p=` asks for TLS channel binding, which Kafka does not support either.
        if binding not in ("n", "y") or name[:2] != "n=" or nonce[:2] != "r=" or not nonce[2:]:
            raise self._failed()
        user = _plain_name(name[2:])
        if authorization_id and _plain_name(authorization_id.removeprefix("a=")) != user:
            raise self._failed()
        self._credential = credential = self._users.credential(user, self._mechanism)
        both = nonce[2:] + self._server_nonce
        salt = b64encode(credential.salt).decode()
        answer = f"r={both},s={salt},i={credential.iterations}"
        self._first = (f"{binding},{authorization_id},", bare, both, answer)
        return answer.encode()

    def _verify(self, text: str) -> bytes:
        """Check the proof in the client's final message; return the server's signature."""
        assert self._first is not None
        assert self._credential is not None
        header, bare, nonce, challenge = self._first
        without_proof, found, proof = text.rpartition(",p=")
        binding, its_nonce, *_extensions = without_proof.split(",")
        if not found or its_nonce != f"r={nonce}" or self.user is not None:
            raise self._failed()
        if binding != f"c={b64encode(header.encode()).decode()}":
            raise self._failed()
        exchange = f"{bare},{challenge},{without_proof}".encode()
        stored = self._credential.stored_key
        signature = hmac.digest(stored, exchange, HASHES[self._mechanism])
        proved = b64decode(proof, validate=True)
        if len(proved) != len(signature):
            raise self._failed()
        client_key = bytes(a ^ b for a, b in zip(proved, signature, strict=True))
        if not hmac.compare_digest(hash_of(self._mechanism, client_key), stored):
            raise self._failed()
        self.user = self._credential.user
        server = self._credential.server_key
        mine = hmac.digest(server, exchange, HASHES[self._mechanism])
        return b"v=" + b64encode(mine)


def _plain_name(escaped: str) -> str:
    """Unescape a user name of SCRAM: `=2C` is a comma, `=3D` an equals sign."""
    return escaped.replace("=2C", ",").replace("=3D", "=")
