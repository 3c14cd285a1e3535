"""The server's side of the SASL mechanisms PLAIN and SCRAM: tokens in, tokens out, no socket.

Source: RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM); Apache Kafka, PlainSaslServer and
ScramSaslServer.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Protocol

from group_coordinator.pipeline.gateway.security.users import Credential, hash_of
from group_coordinator.pipeline.gateway_settings import HASHES, PLAIN
from group_coordinator.pipeline.quoting import quoted_name

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.security.users import Users

_NONCE_BYTES = 24


class AuthenticationFailed(Exception):
    """Failed authentication: wrong credentials, or a token that the mechanism does not have.

    The message may be sent to the client. `logged` also has the user name that the client gave.
    """

    def __init__(self, why: str, user: str | None = None) -> None:
        super().__init__(why)
        self.logged = why if user is None else f"{why} (user {quoted_name(user)})"


class Mechanism(Protocol):
    """One SASL exchange of tokens. `user` is set once the client is authenticated."""

    user: str | None

    async def answer(self, token: bytes) -> bytes:
        """Return the answer to a client's token. Raises AuthenticationFailed."""
        ...


def begin(mechanism: str, users: Users, host: str) -> Mechanism:
    """Start the exchange of one of `MECHANISMS` with a client at the address `host`."""
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
    """The mechanism SCRAM: the client proves that it has the password, the server the keys."""

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
