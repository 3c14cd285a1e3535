"""Signatures of requests: a sender proves that it is the principal that its request names.

Any process that may append to the table `requests` can write any principal. So a coordinator can
require a signature: an HMAC-SHA256 of the request by a key. A key belongs to one principal, or to a
gateway, which signs for every client that it has authenticated.

A request that names a principal without a valid signature is refused: as ANONYMOUS it would run
under another principal, and a missing key would stay unnoticed. A request without a principal is
decided as ANONYMOUS.

The signed content is the request without `signature` and `sent_at` (which the producer sets when it
writes): JSON without nulls and spaces, sorted keys, bytes as base64. A field that a later release
adds is null in requests of an earlier one, so their signatures stay valid.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.schemas.acls import ANONYMOUS
from group_coordinator.schemas.messages import RequestEvent

# The principal of a key that may sign for every principal.
ANYBODY = "*"
_HASH = "sha256"
_encode = msgspec.json.Encoder(order="sorted").encode


class RequestKey(Struct, frozen=True):
    """A key that signs the requests of `principal`; a gateway's key signs for all principals."""

    name: str
    principal: str
    secret: bytes

    def __repr__(self) -> str:
        # A traceback that shows a key must not show its secret.
        return f"RequestKey({self.name!r}, {self.principal!r}, {self.fingerprint})"

    @property
    def fingerprint(self) -> str:
        """A hash that identifies the key without its secret."""
        text = f"{self.name}\n{self.principal}\n".encode() + self.secret
        return hashlib.sha256(text).hexdigest()[:32]


def signed(event: RequestEvent, key: RequestKey) -> RequestEvent:
    """Sign a request; a request without a principal gets the key's principal."""
    if event.principal is None and key.principal != ANYBODY:
        event = replace(event, principal=key.principal)
    return replace(event, signature=f"{key.name}:{_digest(event, key)}")


class VerifiedPrincipal(NamedTuple):
    """The name of the key that signed a request, and the problem with its principal.

    `signer` None: no valid signature. `problem` None: the request's principal is verified, or the
    request names no principal.
    """

    signer: str | None
    problem: str | None


class Signatures:
    """The keys with which a coordinator verifies principals."""

    def __init__(self, keys: Iterable[RequestKey]) -> None:
        self._keys = {key.name: key for key in keys}

    @property
    def fingerprints(self) -> dict[str, str]:
        """The fingerprint of each key, by the key's name."""
        return {name: key.fingerprint for name, key in self._keys.items()}

    def matching(self, fingerprints: Mapping[str, str]) -> Signatures:
        """Return the keys that have these names and fingerprints."""
        mine = self._keys.values()
        return Signatures(key for key in mine if fingerprints.get(key.name) == key.fingerprint)

    @property
    def names(self) -> Collection[str]:
        """The names of the keys."""
        return self._keys.keys()

    def verify(self, event: RequestEvent) -> VerifiedPrincipal:
        """Verify a request's signature and the principal that it claims."""
        claimed = event.principal
        claims = claimed not in (None, ANONYMOUS)
        if event.signature is None:
            problem = f"the request says that it is of {claimed} and is not signed"
            return VerifiedPrincipal(None, problem if claims else None)
        name, _, digest = event.signature.rpartition(":")
        key = self._keys.get(name)
        if key is None or (claims and key.principal not in (claimed, ANYBODY)):
            problem = f"the request says that it is of {claimed}, but not by a key of {claimed}"
            return VerifiedPrincipal(None, problem if claims else None)
        if not hmac.compare_digest(digest.encode(), _digest(event, key).encode()):
            problem = f"the request's signature by key {name!r} is wrong"
            return VerifiedPrincipal(None, problem if claims else None)
        return VerifiedPrincipal(name, None)


def _digest(event: RequestEvent, key: RequestKey) -> str:
    return hmac.digest(key.secret, signed_content(event), _HASH).hex()


def signed_content(event: RequestEvent) -> bytes:
    """Return the bytes that are signed: canonical JSON without `signature` and `sent_at`."""
    bare = replace(event, signature=None, sent_at=None)
    return _encode(_without_nulls(msgspec.to_builtins(bare)))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(each) for each in value]
    return value
