"""The definition of an API in the gateway: its messages, its versions, and its handler."""

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


class CoordinatorHandler(NamedTuple):
    """The handler of an API with exactly one coordinator request for each client request.

    `to_event` converts the client's request to the coordinator's, and `to_response` converts the
    coordinator's response to the client's. Neither runs in an asyncio task, which would cost as
    much as the rest of a heartbeat.

    `has_deadline`: a request that is not decided within `offsets.commit.timeout.ms` after it was
    sent is answered REQUEST_TIMED_OUT, because its client may have switched to another gateway.
    """

    to_event: Callable[[RequestContext, Any], RequestEvent]
    to_response: Callable[[RequestContext, Any, Response], Any]
    has_deadline: bool = False


def unchanged(api: str) -> Callable[[RequestContext, Any], RequestEvent]:
    """Return the `to_event` of an API with the same request body for client and coordinator."""
    return lambda call, request: call.event(api, request.group_id, request.body)


@dataclass(frozen=True)
class ApiHandler:
    """One API of the gateway. `name` is the one that Kafka uses, such as "Heartbeat".

    `handler` is a `CoordinatorHandler`, or an async function from the request's context and body to
    the response. The function may also return the encoded body, or None if the client waits for no
    response. `encoder` encodes a response in a version, instead of the message's schema.

    `counts_each_group`: the handler counts each group of a request as in flight, instead of the
    request. `in_thread`: responses may be long, so a thread encodes them.
    """

    name: str
    handler: Callable[[RequestContext, Any], Awaitable[Any]] | CoordinatorHandler
    encoder: Callable[[Any, int], bytes] | None = None
    counts_each_group: bool = False
    in_thread: bool = False

    @cached_property
    def row(self) -> apis.Api:
        """The API's row in `schemas.apis`."""
        return apis.APIS[underscored(self.name)]

    @cached_property
    def parks(self) -> bool:
        """Whether a request may wait for other clients, so that it does not count as in flight."""
        return self.row.parks

    @cached_property
    def request(self) -> str:
        """The name of the request schema."""
        return f"{self.name}Request"

    @cached_property
    def _flexible(self) -> frozenset[int]:
        return frozenset(filter(schema(self.request).is_flexible, self.row.versions))

    def is_flexible(self, version: int) -> bool:
        """Return whether this version has tagged fields, compact strings and arrays (KIP-482)."""
        return version in self._flexible

    def write(self, response: Any, version: int) -> bytes:
        """Return the encoded body of a response."""
        if self.encoder is not None:
            return self.encoder(response, version)
        return writer(f"{self.name}Response", version)(response)
