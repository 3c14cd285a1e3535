"""What an API of the gateway is: its messages, the versions it speaks, and who answers it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from group_coordinator.schemas import apis
from group_coordinator.schemas.kafka.schema import schema, underscored
from group_coordinator.schemas.kafka.writing import writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.schemas.messages import RequestEvent, Response


class Decided(NamedTuple):
    """The answer of an API whose requests are each one request to the coordinator.

    `ask` makes the coordinator's request of a client's one, and `respond` the client's response of
    what was decided. No task is needed, which would cost as much as all the rest of a heartbeat.
    `in_time`: the request is decided within `offsets.commit.timeout.ms` after it was sent, or else
    answered REQUEST_TIMED_OUT: its client may have turned to another gateway. Without it, it has a
    deadline only where it is signed (`CoordinatorLink.ask_unrepeated`).
    """

    ask: Callable[[RequestContext, Any], RequestEvent]
    respond: Callable[[RequestContext, Any, Response], Any]
    in_time: bool = False


@dataclass(frozen=True)
class ApiHandler:
    """One API as a gateway answers it; `name` is Kafka's, such as "Heartbeat".

    `answer` is `Decided`, or gets the call and its request and returns the response, or the bytes
    of its body; None where the client waits for none. What it returns is written by the message's
    schema, or by `own_write`, which gets it and the version. `takes_room`: an answer takes room for
    each group that it names, so the request takes none.
    `aside`: an answer may be long, so it is written in a thread, and the loop serves others.
    """

    name: str
    answer: Callable[[RequestContext, Any], Awaitable[Any]] | Decided
    own_write: Callable[[Any, int], bytes] | None = None
    takes_room: bool = False
    aside: bool = False

    @cached_property
    def row(self) -> apis.Api:
        """The API's row in `schemas.apis`."""
        return apis.APIS[underscored(self.name)]

    @cached_property
    def parks(self) -> bool:
        """Whether an answer may wait for other clients' requests."""
        return self.row.parks

    @cached_property
    def request(self) -> str:
        """The name of the requests' schema."""
        return f"{self.name}Request"

    @cached_property
    def _flexible(self) -> frozenset[int]:
        return frozenset(filter(schema(self.request).is_flexible, self.row.versions))

    def is_flexible(self, version: int) -> bool:
        """Whether this version has tagged fields, and compact texts and lists (KIP-482)."""
        return version in self._flexible

    def write(self, response: Any, version: int) -> bytes:
        """Return the body of a response."""
        if self.own_write is not None:
            return self.own_write(response, version)
        return writer(f"{self.name}Response", version)(response)
