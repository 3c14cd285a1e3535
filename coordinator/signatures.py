"""Signatures of requests: a sender proves that it is the principal that it names.

Whoever may append to `requests` can write any principal there. So a coordinator can ask for a
proof: an HMAC-SHA256 of the request by a key that the sender holds. A key is one principal's, or a
gateway's, which vouches for all that have logged in to it.

A request that names a principal and has no valid signature is refused. It is not decided as
ANONYMOUS's: it would be carried out under another name than the sender meant, and nobody would
notice a key that was forgotten. A request that names no principal is ANONYMOUS's.

What is signed is the request without `signature` and `sent_at`, which a producer sets as it writes:
JSON without nulls and spaces, the keys of each object in order, bytes as base64. A field that a
later release adds is null in the requests of an earlier one, and changes no signature.
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

# As a key's principal: it may sign what anybody claims.
ANYBODY = "*"
_HASH = "sha256"
_encode = msgspec.json.Encoder(order="sorted").encode


class RequestKey(Struct, frozen=True):
    """A key that signs the requests of `principal`; a gateway's key signs those of ANYBODY."""

    name: str
    principal: str
    secret: bytes

    def __repr__(self) -> str:
        # A traceback that shows a key must not show its secret.
        return f"RequestKey({self.name!r}, {self.principal!r}, {self.fingerprint})"

    @property
    def fingerprint(self) -> str:
        """Tells two keys apart, and tells nobody the secret."""
        text = f"{self.name}\n{self.principal}\n".encode() + self.secret
        return hashlib.sha256(text).hexdigest()[:32]


def signed(event: RequestEvent, key: RequestKey) -> RequestEvent:
    """Return the request with a signature; one without a principal becomes the key's."""
    if event.principal is None and key.principal != ANYBODY:
        event = replace(event, principal=key.principal)
    return replace(event, signature=f"{key.name}:{_digest(event, key)}")


class Judged(NamedTuple):
    """The name of the key that signed a request, and why its principal is not believed.

    `signer` None: nobody did, or it is not known who. `problem` None: the principal is believed, or
    the request claims none.
    """

    signer: str | None
    problem: str | None


class Signatures:
    """The keys by which a coordinator believes a principal."""

    def __init__(self, keys: Iterable[RequestKey]) -> None:
        self._keys = {key.name: key for key in keys}

    @property
    def fingerprints(self) -> dict[str, str]:
        """Each key's name and fingerprint."""
        return {name: key.fingerprint for name, key in self._keys.items()}

    def only(self, fingerprints: Mapping[str, str]) -> Signatures:
        """Those of the keys that have these names and fingerprints."""
        mine = self._keys.values()
        return Signatures(key for key in mine if fingerprints.get(key.name) == key.fingerprint)

    @property
    def names(self) -> Collection[str]:
        """The names of the keys."""
        return self._keys.keys()

    def judge(self, event: RequestEvent) -> Judged:
        """Find out who signed a request, and whether its principal is believed."""
        claimed = event.principal
        claims = claimed not in (None, ANONYMOUS)
        if event.signature is None:
            why = f"the request says that it is of {claimed} and is not signed"
            return Judged(None, why if claims else None)
        name, _, digest = event.signature.rpartition(":")
        key = self._keys.get(name)
        if key is None or (claims and key.principal not in (claimed, ANYBODY)):
            why = f"the request says that it is of {claimed}, but not by a key of {claimed}"
            return Judged(None, why if claims else None)
        if not hmac.compare_digest(digest.encode(), _digest(event, key).encode()):
            why = f"the request's signature by key {name!r} is wrong"
            return Judged(None, why if claims else None)
        return Judged(name, None)


def _digest(event: RequestEvent, key: RequestKey) -> str:
    return hmac.digest(key.secret, signed_content(event), _HASH).hex()


def signed_content(event: RequestEvent) -> bytes:
    """The bytes of a request that are signed."""
    bare = replace(event, signature=None, sent_at=None)
    return _encode(_without_nulls(msgspec.to_builtins(bare)))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(each) for each in value]
    return value
