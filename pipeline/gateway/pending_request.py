"""A client's request from its frame to its response.

A request first waits until the number of requests in flight is below the limit. Then the
coordinator decides it, or a task of the API answers it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from group_coordinator.pipeline.gateway.api import CoordinatorHandler
from group_coordinator.pipeline.gateway.wire import response_frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from group_coordinator.pipeline.gateway.api import ApiHandler
    from group_coordinator.pipeline.gateway.coordinator_link import CoordinatorRequest
    from group_coordinator.pipeline.gateway.memory_pool import ResponseMemory
    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.schemas.messages import Response


T = TypeVar("T")


class ResponseQueue(Protocol):
    """The connection of a request: it starts requests, and sends their responses, in order."""

    response_memory: ResponseMemory

    def start_next(self) -> None:
        """Start the next requests that may start."""

    def send_soon(self) -> None:
        """Send the responses that are ready, in this iteration of the loop."""

    def send_responses(self) -> None:
        """Send the responses that are ready, and close the connection after an error."""


class PendingRequest:
    """A frame that is being answered, and its place in the order of responses.

    `Session.start` calls `run`, `decode_in_thread` or `handle`. Afterwards the request has exactly
    one result: `on_response` or `on_error`.

    With its result, the request drops its references to the running work and the API's context. The
    work refers to the request, so they would be a reference cycle. With many members, the garbage
    collector's pauses for such cycles would delay responses.
    """

    __slots__ = (
        "_api",
        "_body",
        "_call",
        "_connection",
        "_correlation_id",
        "_in_thread",
        "_is_in_flight",
        "_running",
        "error",
        "frame",
        "is_done",
        "is_queued",
        "is_started",
        "response",
        "response_memory",
    )

    def __init__(self, connection: ResponseQueue, frame: bytes) -> None:
        self._connection = connection
        self.response_memory = connection.response_memory
        self.frame = frame
        # Whether the call that starts the request has returned.
        self.is_started = False
        # Whether later requests cannot overtake this one any more.
        self.is_queued = False
        self.is_done = False
        self.response: bytes | None = None
        self.error: Exception | None = None
        # Whether it counts as a request in flight. It waits for that while nothing is running.
        self._is_in_flight = False
        self._running: asyncio.Future[Any] | asyncio.Handle | CoordinatorRequest | None = None

    # --- the ways to answer it --------------------------------------------------------------------

    def run(self, respond: Callable[[], Awaitable[bytes | None]]) -> None:
        """Answer in a task, which does not count as in flight."""
        self._running = asyncio.ensure_future(self._complete(respond))

    def decode_in_thread(
        self, decode: Callable[[], Awaitable[T]], handle: Callable[[T], None]
    ) -> None:
        """Decode a long request in a thread, so that the event loop serves other clients.

        `handle` then starts to answer the decoded request.
        """
        self._running = asyncio.ensure_future(self._decode(decode, handle))

    def handle(
        self,
        api: ApiHandler,
        call: RequestContext,
        correlation_id: int,
        body: Any,
        in_thread: bool = False,
    ) -> None:
        """Answer a decoded request by its API, once it may be in flight.

        `in_thread`: the response may be long, so a thread encodes it.
        """
        self._api = api
        self._call = call
        self._correlation_id = correlation_id
        self._body = body
        self._in_thread = in_thread or api.in_thread
        # No work runs now, even if a thread decoded the request.
        self._running = None
        if api.parks or api.counts_each_group:
            self._begin()
        elif call.services.in_flight.try_acquire(1, self._on_acquired):
            self._on_acquired()

    def cancel(self) -> None:
        """Cancel the request, because its response is not needed any more."""
        if self.is_done:
            return
        if self._running is None:
            self._call.services.in_flight.withdraw(self._on_acquired)
        else:
            self._running.cancel()
            self._release()

    # --- its progress -----------------------------------------------------------------------------

    def on_queued(self) -> None:
        """Record that the request is in its queue, where later requests cannot overtake it."""
        self.is_queued = True
        # Before that, the connection starts the next frame itself.
        if self.is_started:
            self._connection.start_next()

    def on_response(self, frame: bytes | None) -> None:
        """Take the response; None if the client waits for none."""
        self.response = frame
        self._finish()
        self._connection.send_soon()

    def on_error(self, error: Exception) -> None:
        """Take an error instead of a response; it closes the connection."""
        self.error = error
        self._finish()
        self._connection.send_responses()

    def _finish(self) -> None:
        self.is_done = True
        self._running = None
        # Without references to them, the memory of the request is free while it waits its turn.
        self._call, self._body = _NO_CALL, None

    def _on_acquired(self) -> None:
        self._is_in_flight = True
        self._begin()

    def _release(self) -> None:
        if self._is_in_flight:
            self._is_in_flight = False
            self._call.services.in_flight.release(1)

    def _begin(self) -> None:
        handler = self._api.handler
        if not isinstance(handler, CoordinatorHandler):
            self._call.on_queued = self.on_queued
            self._call.response_memory = self.response_memory
            self.run(partial(self._respond, handler))
            return
        try:
            event = handler.to_event(self._call, self._body)
        # The caller may be another connection that has just released its slot. The error must not
        # be raised there.
        except Exception as error:
            self._release()
            self._running = asyncio.get_running_loop().call_soon(self.on_error, error)
        else:
            # As in Kafka, later requests of the connection do not overtake a parked request.
            on_queued = None if self._api.parks else self.on_queued
            link = self._call.services.link
            if handler.has_deadline:
                until = self._call.sent_after + link.commit_timeout_ms
                self._running = link.send(event, self._on_decided, on_queued, until)
            else:
                self._running = link.send_once(event, self._on_decided, on_queued)

    def _on_decided(self, decision: Response) -> None:
        self._release()
        if self._in_thread:
            self.run(partial(self._encode_in_thread, decision))
            return
        try:
            frame = self._encode(decision)
        except Exception as error:
            self.on_error(error)
        else:
            self.on_response(frame)

    async def _complete(self, respond: Callable[[], Awaitable[bytes | None]]) -> None:
        try:
            frame = await respond()
        # A bug in one API must neither leave its client without a result nor stop the gateway.
        except Exception as error:
            self.on_error(error)
        else:
            self.on_response(frame)

    async def _decode(
        self, decode: Callable[[], Awaitable[T]], handle: Callable[[T], None]
    ) -> None:
        try:
            handle(await decode())
        # An invalid request closes its connection, as does a bug in an API.
        except Exception as error:
            self.on_error(error)

    async def _respond(
        self, handle: Callable[[RequestContext, Any], Awaitable[Any]]
    ) -> bytes | None:
        try:
            response = await handle(self._call, self._body)
        finally:
            self._release()
        if response is None:
            return None
        # A body that is encoded already only needs its header.
        if self._in_thread and not isinstance(response, bytes):
            return await self._encode_in_thread(response)
        return self._encode(response)

    async def _encode_in_thread(self, result: Any) -> bytes:
        return await self._call.in_thread(self._encode, result)

    def _encode(self, result: Any) -> bytes:
        """Encode `result`, which the coordinator or the API itself has returned."""
        handler = self._api.handler
        if isinstance(handler, CoordinatorHandler):
            result = handler.to_response(self._call, self._body, result)
        return response_frame(self._correlation_id, self._api, result, self._call.version)


_NO_CALL = cast("RequestContext", None)
