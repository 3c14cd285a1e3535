"""What an API of the gateway is: its messages, the versions it speaks, and who answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafka.protocol.api_message import ApiMessage

    from pipeline.gateway.call import Call


class Codec(NamedTuple):
    """An API's own reading of requests and writing of responses.

    `read` gets a frame, where the request's body begins in it, and the version; it returns the
    request and where its body ends, and raises what `fields.Reader` raises. `write` gets what
    `answer` returned and the version, and returns the response's body.
    """

    read: Callable[[bytes, int, int], tuple[Any, int]]
    write: Callable[[Any, int], bytes]


class Api(NamedTuple):
    """One API in the versions `lowest` to `highest`.

    `request` is kafka-python's class of its requests. `answer` gets the call and its request, and
    returns the response; None where the client waits for none. Without a `codec` requests and
    responses are kafka-python's. `parks`: an answer may wait for other clients' requests, so they
    must be read meanwhile, however many such requests there are.
    """

    request: type[ApiMessage]
    lowest: int
    highest: int
    answer: Callable[[Call, Any], Awaitable[Any]]
    codec: Codec | None = None
    parks: bool = False

    @property
    def key(self) -> int:
        """Kafka's number of the API."""
        return int(self.request.API_KEY)

    @property
    def name(self) -> str:
        """Kafka's name of its request."""
        return str(self.request.name)

    def is_flexible(self, version: int) -> bool:
        """Whether this version has tagged fields, and compact texts and lists (KIP-482)."""
        return bool(self.request.flexible_version_q(version))
