"""What an API of the gateway is: its messages, the versions it speaks, and who answers it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from group_coordinator.schemas import apis

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafka.protocol.api_message import ApiMessage

    from group_coordinator.pipeline.gateway.call import Call
    from group_coordinator.schemas.messages import RequestEvent, Response

_BY_KEY = {row.key: row for row in apis.APIS.values()}


class Codec(NamedTuple):
    """An API's own reading of requests and writing of responses.

    `read` gets a frame, where the request's body begins in it, and the version; it returns the
    request and where its body ends, and raises what `fields.Reader` raises. `write` gets what
    `answer` returned and the version, and returns the response's body.
    """

    read: Callable[[bytes, int, int], tuple[Any, int]]
    write: Callable[[Any, int], bytes]


class Decided(NamedTuple):
    """The answer of an API whose requests are each one request to the coordinator.

    `ask` makes the coordinator's request of a client's one, and `respond` the client's response of
    what was decided. No task is needed, which would cost as much as all the rest of a heartbeat.
    `in_time`: the request is decided within `offsets.commit.timeout.ms` after it was sent, or else
    answered REQUEST_TIMED_OUT: its client may have turned to another gateway.
    """

    ask: Callable[[Call, Any], RequestEvent]
    respond: Callable[[Call, Any, Response], Any]
    in_time: bool = False


@dataclass(frozen=True)
class Api:
    """One API as a gateway answers it; `row` is what `schemas.apis` has of it.

    `request` is kafka-python's class of its requests. `answer` is `Decided`, or gets the call and
    its request and returns the response, or the bytes of its body; None where the client waits for
    none. Without a `codec` requests and responses are kafka-python's. `takes_room`: an answer takes
    room for each group that it names, so the request takes none.
    `repeats`: a client sends the same bytes again and again, but for the correlation id.
    `aside`: an answer may be long, so it is written in a thread, and the loop serves others.

    `name` is Kafka's name of the request.
    """

    request: type[ApiMessage]
    answer: Callable[[Call, Any], Awaitable[Any]] | Decided
    codec: Codec | None = None
    takes_room: bool = False
    repeats: bool = False
    aside: bool = False
    row: apis.Api = field(init=False)
    parks: bool = field(init=False)
    name: str = field(init=False)
    _flexible: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        row = _BY_KEY[int(self.request.API_KEY)]
        object.__setattr__(self, "row", row)
        object.__setattr__(self, "parks", row.parks)
        object.__setattr__(self, "name", str(self.request.name))
        flexible = frozenset(v for v in row.versions if self.request.flexible_version_q(v))
        object.__setattr__(self, "_flexible", flexible)

    def is_flexible(self, version: int) -> bool:
        """Whether this version has tagged fields, and compact texts and lists (KIP-482)."""
        return version in self._flexible
